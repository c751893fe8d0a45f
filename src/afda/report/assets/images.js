// Pictures, and the galleries of mistakes and of images to label next.

const sheets = values.sheets.map((sheet) => {
  const image = new Image();
  image.src = sheet.url;
  return { ...sheet, image, ready: image.decode() };
});

// Draw a picture of a sheet into a box of a canvas.
function drawPicture(context, { width, height, columns, image }, number, x, y, w, t) {
  context.drawImage(image, (number % columns) * width, Math.floor(number / columns) * height, width, height, x, y, w, t);
}

function picture(sheetNumber, number, label) {
  const sheet = sheets[sheetNumber], { width, height } = sheet;
  const canvas = h("canvas", {
    width, height, role: "img", "aria-label": label, "data-picture": number, class: width < 64 ? "pixel" : null,
  });
  sheet.ready.then(() => drawPicture(canvas.getContext("2d"), sheet, number, 0, 0, width, height));
  return canvas;
}

// A list of pictures, each with what `caption` says of it.
function gallery(list, caption) {
  return h("ul", { class: "gallery" }, list.names.map((name, i) =>
    h("li", {}, list.pictures && picture(list.sheet, list.pictures[i], name), caption(i))));
}

function mistakes(run) {
  const wrong = run.mistakes;
  if (!wrong) return null;
  return section("mistakes", "Mistakes", "Which images are misclassified with the highest confidence?",
    wrong.count === 0 ? h("p", {}, "No image is misclassified.") : [
      paragraph("quiet", `${whole(wrong.names.length)} of ${plural(wrong.count, "misclassified image")} ${PARTS[run.part].mistakes}. `,
        "Below each: true class → predicted class, and its confidence. Some may have wrong labels."),
      gallery(wrong, (i) => [
        h("p", {}, h("strong", {}, run.classes[wrong.true[i]]), " → ",
          h("strong", { class: "bad" }, run.classes[wrong.predicted[i]]), ` ${percent(100 * wrong.confidence[i], 0)}`),
        paragraph("name", wrong.names[i])]),
    ]);
}

function labelNext() {
  const list = values.label_next;
  if (!list) return null;
  const count = list.names.length, model = several ? `The model of ${list.run}` : "The model";
  return section("label-next", "Label these next", "Which labels would improve the model most?",
    h("p", {}, `${model} is uncertain about `,
      count === 1 ? "this unlabelled image." : `these ${whole(count)} unlabelled images, and they differ from each other.`,
      list.examined < list.unlabelled
        && ` They were chosen from ${whole(list.examined)} of ${whole(list.unlabelled)} unlabelled images.`),
    h("p", {}, "Fill in the column ", h("code", {}, "label"), " of ", h("code", {}, list.file),
      ", beside this page, and train again with ", h("code", { class: "option" }, "--more-labels"), " ", h("code", {}, list.file), "."),
    gallery(list, (i) => [
      h("p", {}, h("strong", {}, list.classes[list.suggested[i]]),
        ` ${percent(100 * list.confidence[i], 0)}, or ${list.classes[list.second[i]]}?`),
      paragraph("name", list.names[i])]));
}
