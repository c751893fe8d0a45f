// The embedding: a t-SNE map of the features to explore with pointer, fingers or keyboard.

const probe = h("span", { class: "hidden", "aria-hidden": "true" });
document.body.append(probe);

// A CSS colour as the browser computes it, for a canvas.
function resolveColour(colour) {
  probe.style.color = colour;
  return getComputedStyle(probe).color;
}

const CALM = "light-dark(#9fbad6, #38587a)";

function classColour(k) {
  if (k < 10) return `var(--k${k})`;
  return `color-mix(in oklab, var(--k${k % 10}), ${Math.floor(k / 10) % 2 ? "black 35%" : "white 35%"})`;
}

// The colour of a confidence; `guessing` is that of a guess.
function confidenceColour(confidence, guessing) {
  const doubt = 1 - Math.max(0, (confidence - guessing) / (1 - guessing));
  return `color-mix(in oklab, var(--k6) ${Math.round(100 * doubt)}%, ${CALM})`;
}

// Draw a disc once, to stamp it thousands of times.
function makeStamp(colour, radius, ring, ratio) {
  const side = Math.ceil(2 * (radius + 1.5) * ratio);
  const stamp = h("canvas", { width: side, height: side }), c = stamp.getContext("2d");
  c.scale(ratio, ratio);
  c.arc(side / ratio / 2, side / ratio / 2, radius, 0, 7);
  c.globalAlpha = ring ? 1 : 0.78;
  c.fillStyle = colour;
  c.fill();
  if (ring) { c.strokeStyle = ring; c.lineWidth = 1.5; c.stroke(); }
  return stamp;
}

// The canvas: what is drawn where, and how the view moves.
class EmbeddingCanvas {
  constructor(run) {
    const data = run.embedding, n = data.points.length;
    Object.assign(this, { run, data, n, sheet: data.pictures && sheets[data.sheet] });
    this.known = data.true.some((k) => k >= 0);
    this.by = 2 * data.true.filter((k) => k >= 0).length > n ? "true" : "predicted";
    this.show = "all";
    this.hiddenClasses = new Set();
    this.guessing = 1 / run.classes.length;
    this.extent = [0, 1].map((axis) => Math.max(1, ...data.points.map((point) => point[axis])));
    this.order = Array.from({ length: n }, (_, i) => n - 1 - i); // labelled images come first, and are drawn last
    Object.assign(this, { view: null, fitted: null, at: null, colours: [], names: [], haloSize: 16, requested: false });
    this.canvas = h("canvas", {
      class: "embedding", tabindex: 0, role: "application",
      "aria-roledescription": "embedding of images", "aria-describedby": "embedding-help",
      "aria-label": `t-SNE embedding of ${whole(n)} images. Arrow keys go from image to image, plus and minus zoom, 0 shows all.`,
    });
    this.tip = h("div", { class: "tip", hidden: true });
    this.halo = h("div", { class: "halo", hidden: true });
    this.live = h("div", { class: "hidden", "aria-live": "polite", id: "embedding-live" });
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    if (this.sheet) this.sheet.ready.then(() => this.redraw());
    listen(this);
  }

  classOf(i) { return this.by === "true" ? this.data.true[i] : this.data.predicted[i]; }
  className(k) { return k < 0 ? "unknown" : this.run.classes[k]; }
  isWrong(i) { return this.data.true[i] >= 0 && this.data.true[i] !== this.data.predicted[i]; }
  isLabelled(i) { return i < this.data.labelled; }
  isShown(i) {
    if (this.hiddenClasses.has(this.classOf(i))) return false;
    if (this.show === "labelled") return this.isLabelled(i);
    if (this.show === "wrong") return this.isWrong(i);
    return this.show === "all" || this.data.confidence[i] < 0.8;
  }
  place(i) { return [this.data.points[i][0] * this.view.k + this.view.x, this.data.points[i][1] * this.view.k + this.view.y]; }

  colourOf(i) {
    const { data } = this;
    if (this.by === "confidence") return confidenceColour(Math.round(data.confidence[i] * 40) / 40, this.guessing);
    if (this.by === "answer") return data.true[i] < 0 ? "var(--line)" : this.isWrong(i) ? "var(--bad)" : CALM;
    return this.classOf(i) < 0 ? "var(--line)" : classColour(this.classOf(i));
  }

  // Choose colours and the places of class names, then draw.
  update() {
    const cache = new Map();
    const solid = (colour) => { if (!cache.has(colour)) cache.set(colour, resolveColour(colour)); return cache.get(colour); };
    this.colours = this.data.points.map((_, i) => solid(this.colourOf(i)));
    const shown = this.order.filter((i) => this.isShown(i));
    this.names = this.run.classes.flatMap((name, k) => {
      const members = shown.filter((i) => this.classOf(i) === k);
      const sorted = (axis) => members.map((i) => this.data.points[i][axis]).sort((a, b) => a - b);
      const median = (axis) => sorted(axis)[Math.floor(members.length / 2)];
      return members.length < 5 ? [] : [[name.length > 18 ? `${name.slice(0, 17)}…` : name, median(0), median(1)]];
    });
    if (this.at !== null && !this.isShown(this.at)) this.point(null);
    this.redraw();
    return shown.length;
  }

  redraw() {
    if (this.requested) return;
    this.requested = true;
    requestAnimationFrame(() => { this.requested = false; this.render(); });
  }

  render() {
    const { canvas, view } = this;
    if (!canvas.isConnected || !view) return;
    const ratio = window.devicePixelRatio || 1, w = canvas.clientWidth, t = canvas.clientHeight;
    const size = [Math.round(w * ratio), Math.round(t * ratio)];
    if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
    canvas.dataset.view = [view.k, view.x, view.y].join(" ");
    const c = canvas.getContext("2d"), zoom = view.k / this.fitted.k;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, w, t);
    const inside = ([x, y]) => x > -20 && x < w + 20 && y > -20 && y < t + 20;
    const near = this.order.filter((i) => this.isShown(i) && inside(this.place(i)));
    const pictures = this.sheet && this.sheet.image.complete && zoom > 2 && near.length <= 160;
    const quarter = (x) => Math.round(4 * x) / 4;
    const large = quarter(Math.min(8, 4.6 * Math.sqrt(zoom)));
    if (pictures) this.drawPictures(c, near);
    else this.drawDiscs(c, near, quarter(Math.min(6, (this.n > 2000 ? 2 : 2.8) * Math.sqrt(zoom))), large, ratio);
    if ((this.by === "true" || this.by === "predicted") && this.run.classes.length <= 30 && zoom < 4) this.drawNames(c);
    this.haloSize = 2 * ((pictures ? 26 : large) + 4);
    this.moveHalo();
  }

  drawPictures(c, near) {
    const side = 30, ink = resolveColour("var(--ink)");
    const box = (x, y, edge) => [x - side / 2 - edge, y - side / 2 - edge, side + 2 * edge, side + 2 * edge];
    for (const i of near) {
      const [x, y] = this.place(i);
      c.fillStyle = this.colours[i];
      c.fillRect(...box(x, y, 2.5));
      c.imageSmoothingEnabled = this.sheet.width > side;
      drawPicture(c, this.sheet, this.data.pictures[i], ...box(x, y, 0));
      if (this.isLabelled(i)) { c.strokeStyle = ink; c.lineWidth = 1.6; c.strokeRect(...box(x, y, 3.5)); }
    }
  }

  drawDiscs(c, near, small, large, ratio) {
    const ink = resolveColour("var(--ink)"), stamps = { true: new Map(), false: new Map() };
    for (const i of near) {
      const [x, y] = this.place(i), labelled = this.isLabelled(i), kind = stamps[labelled], colour = this.colours[i];
      if (!kind.has(colour)) kind.set(colour, makeStamp(colour, labelled ? large : small, labelled ? ink : null, ratio));
      const stamp = kind.get(colour), w = stamp.width / ratio, t = stamp.height / ratio;
      c.drawImage(stamp, x - w / 2, y - t / 2, w, t);
    }
  }

  drawNames(c) {
    const ink = resolveColour("var(--ink)"), card = resolveColour("var(--card)"), { view } = this;
    Object.assign(c, { font: "700 15px system-ui, sans-serif", textAlign: "center", textBaseline: "middle", lineJoin: "round" });
    for (const [name, x, y] of this.names) {
      const place = [x * view.k + view.x, y * view.k + view.y];
      c.strokeStyle = card; c.lineWidth = 4; c.strokeText(name, ...place);
      c.fillStyle = ink; c.fillText(name, ...place);
    }
  }

  // The ring around the current image is an element of its own, so that pointing need not draw the embedding again.
  moveHalo() {
    this.halo.hidden = this.at === null || !this.isShown(this.at);
    if (this.halo.hidden) return;
    const [x, y] = this.place(this.at), side = this.haloSize;
    const box = { left: x - side / 2, top: y - side / 2, width: side, height: side };
    for (const [name, v] of Object.entries(box)) this.halo.style[name] = `${v}px`;
  }

  // Make an image the current one, and show what is known of it.
  point(i, spoken = false) {
    const { data, tip, sheet, canvas } = this;
    this.at = i;
    this.moveHalo();
    tip.hidden = i === null;
    if (i === null) { tip.removeAttribute("data-point"); return; }
    const prediction = `predicted ${this.className(data.predicted[i])}, confidence ${percent(100 * data.confidence[i], 0)}`;
    const truth = data.true[i] >= 0 && `true class ${this.className(data.true[i])}`;
    const facts = [truth, prediction, this.isLabelled(i) ? "labelled" : "unlabelled"].filter(Boolean);
    tip.dataset.point = i;
    tip.replaceChildren();
    if (sheet) {
      const preview = picture(data.sheet, data.pictures[i], data.names[i]);
      preview.style.width = `${Math.round(sheet.width * Math.min(128 / sheet.width, 128 / sheet.height))}px`;
      tip.append(preview);
    }
    const kind = (fact) => (fact === prediction && this.isWrong(i) ? "bad" : null);
    fill(tip, {}, [facts.map((fact) => paragraph(kind(fact), fact)), paragraph("name", data.names[i])]);
    const [x, y] = this.place(i), w = canvas.clientWidth, t = canvas.clientHeight;
    const left = x > w / 2 ? x - tip.offsetWidth - 16 : x + 16;
    tip.style.left = `${Math.max(4, Math.min(w - tip.offsetWidth - 4, left))}px`;
    tip.style.top = `${Math.max(4, Math.min(t - tip.offsetHeight - 4, y - tip.offsetHeight / 2))}px`;
    if (spoken) this.live.textContent = `${data.names[i]}: ${facts.join(", ")}`;
  }

  nearest(x, y, within) {
    let best = null, closest = within * within;
    for (let i = 0; i < this.n; i++) {
      if (!this.isShown(i)) continue;
      const [a, b] = this.place(i), d = (a - x) ** 2 + (b - y) ** 2;
      if (d < closest) { closest = d; best = i; }
    }
    return best;
  }

  // Go to the next image in a direction.
  step(dx, dy) {
    const w = this.canvas.clientWidth, t = this.canvas.clientHeight;
    if (this.at === null || !this.isShown(this.at)) { this.point(this.nearest(w / 2, t / 2, 1e9), true); return; }
    const [x, y] = this.place(this.at);
    let best = null, least = Infinity;
    for (let i = 0; i < this.n; i++) {
      if (i === this.at || !this.isShown(i)) continue;
      const [a, b] = this.place(i), along = (a - x) * dx + (b - y) * dy, aside = Math.abs((a - x) * dy) + Math.abs((b - y) * dx);
      if (along > 0 && aside <= along && along + 2 * aside < least) { least = along + 2 * aside; best = i; }
    }
    if (best === null) return;
    const [a, b] = this.place(best), into = (v, size) => (v < 30 ? 30 - v : v > size - 30 ? size - 30 - v : 0);
    if (into(a, w) || into(b, t)) this.move(into(a, w), into(b, t));
    this.point(best, true);
  }

  move(dx, dy) { this.view.x += dx; this.view.y += dy; this.redraw(); }

  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const k = Math.max(this.fitted.k * 0.8, Math.min(this.fitted.k * 60, this.view.k * factor)), f = k / this.view.k;
    this.view = { k, x: x - (x - this.view.x) * f, y: y - (y - this.view.y) * f };
    this.redraw();
    if (this.at !== null) this.point(this.at);
  }

  fit() {
    const pad = 22, { clientWidth: w, clientHeight: t } = this.canvas, [wide, high] = this.extent;
    const k = Math.min((w - 2 * pad) / wide, (t - 2 * pad) / high);
    return { k, x: (w - k * wide) / 2, y: (t - k * high) / 2 };
  }

  reset() {
    this.fitted = this.fit();
    this.view = { ...this.fitted };
    this.redraw();
    if (this.at !== null) this.point(this.at);
  }

  resize() {
    if (!this.canvas.isConnected) return;
    if (!this.view || this.view.k === this.fitted.k) this.reset();
    else { this.fitted = this.fit(); this.redraw(); }
  }
}
