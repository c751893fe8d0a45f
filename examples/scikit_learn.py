"""Train with partial labels in a scikit-learn pipeline, and choose a setting by cross-validation."""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline

from afda import AFDAClassifier


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    steps = parser.parse_args().steps

    x, x_test, y, y_test = train_test_split(*load_digits(return_X_y=True), test_size=500, random_state=0)
    partial = np.where(np.arange(len(y)) < 50, y, -1)  # -1: no label

    pipeline = make_pipeline(PCA(32, random_state=0), AFDAClassifier(steps=steps, random_state=0))
    search = GridSearchCV(pipeline, {"afdaclassifier__method": ["supervised", "vat+entropy"]}, cv=2)
    search.fit(x, partial)  # samples without a label are trained on, not scored

    print("Chosen method:", search.best_params_["afdaclassifier__method"])
    print(f"Test accuracy: {search.score(x_test, y_test):.3f}")
    print("Features:", search.best_estimator_.transform(x_test).shape)


if __name__ == "__main__":
    main()
