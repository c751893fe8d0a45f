"""A perceptron for vectors, such as embeddings of any kind."""

from pydantic import Field
from torch import nn

from afda.nets import BatchNorm, Classifier, Dropout, Net, he_truncated


class MLP(Net):
    """Two hidden layers for vectors (128 features)."""

    hidden: int = Field(256, gt=0, le=100_000, description="units of the first hidden layer")
    features: int = Field(128, gt=0, le=100_000, description="units of the second hidden layer, the features")
    dropout: float = Field(0.25, ge=0, lt=1, description="dropout between the hidden layers")
    momentum: float = Field(0.01, gt=0, le=1, description="how fast BatchNorm's running statistics move")

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        inputs = 1
        for size in shape:
            inputs *= size
        f = nn.Sequential(
            nn.Flatten(),
            nn.Linear(inputs, self.hidden, bias=False),
            BatchNorm(self.hidden, momentum=self.momentum),
            nn.LeakyReLU(0.1, inplace=True),
            Dropout(self.dropout),
            nn.Linear(self.hidden, self.features, bias=False),
            BatchNorm(self.features, momentum=self.momentum),
            nn.LeakyReLU(0.1, inplace=True),
        )
        return Classifier(f, self.features, classes).apply(he_truncated)
