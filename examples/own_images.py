"""Train on a folder of images with a few labels, then classify new ones.

The script draws its own images, circles and squares, so that it runs anywhere. Replace `draw_photos` by your folder:
one subfolder of labelled images per class, and `unlabeled/` with the rest.
"""

import argparse
import random
import subprocess
import sys
from pathlib import Path

from PIL import Image, ImageDraw


def draw(kind: str, path: Path) -> None:
    """Write one image of 24x24 pixels with a circle or a square at a random place."""
    image = Image.new("RGB", (24, 24), tuple(random.choices(range(100), k=3)))
    left, top, size = random.randint(1, 8), random.randint(1, 8), random.randint(9, 14)
    box = (left, top, left + size, top + size)
    pen = ImageDraw.Draw(image)
    colour = tuple(random.choices(range(130, 256), k=3))
    (pen.ellipse if kind == "circle" else pen.rectangle)(box, fill=colour)
    image.save(path)


def draw_photos(folder: Path) -> None:
    """Write 30 labelled images of each class, 120 without a label, and 10 new ones."""
    random.seed(0)
    for kind in ("circle", "square"):
        for place, count in ((kind, 30), ("unlabeled", 60), ("../new", 5)):
            (folder / place).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                draw(kind, folder / place / f"{kind}-{number}.png")


def afda(*arguments: str) -> None:
    """Run an afda command and stop if it fails."""
    print("\n$ afda", *arguments, flush=True)
    subprocess.run([sys.executable, "-m", "afda", *arguments], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", default="400")
    parser.add_argument("--folder", type=Path, default=Path("runs/own-images"))
    asked = parser.parse_args()

    photos, new, run = asked.folder / "photos", asked.folder / "new", asked.folder / "run"
    draw_photos(photos)
    afda("check", str(photos))
    afda("train", str(photos), "--steps", asked.steps, "--out", str(run), "--overwrite")
    afda("predict", str(run), str(new), "-o", str(asked.folder / "predictions.csv"), "--overwrite")
    afda("report", str(run), "-o", str(asked.folder / "report.html"))


if __name__ == "__main__":
    main()
