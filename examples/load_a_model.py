"""Train a model, load it from its directory, and classify arrays with it."""

import argparse
from pathlib import Path

from afda import train
from afda.data import load
from afda.machine.runtime import select_runtime
from afda.recipes import recipe
from afda.runs.model import compute_outputs, load_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--out", type=Path, default=Path("runs/load-a-model"))
    asked = parser.parse_args()

    data = load("digits")
    train(
        recipe("digits-demo", data, labels=50).with_settings([f"steps={asked.steps}"]), data, asked.out, overwrite=True
    )

    model, shape = load_model(asked.out)  # any directory that `afda train` has written
    machine = select_runtime()
    machine.place(model)
    out = compute_outputs(model, data.test.x, machine)  # raw pixels: uint8 of shape (n, channels, height, width)
    probabilities = model.probabilities(out.logits)
    confidence, predicted = probabilities.max(dim=1)
    print("Input shape:", tuple(shape), "classes:", ", ".join(model.classes))
    for row in range(5):
        print(f"image {row}: {model.classes[predicted[row]]} with confidence {confidence[row]:.2f}")


if __name__ == "__main__":
    main()
