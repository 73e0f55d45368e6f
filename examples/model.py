"""Nothing is wrong here: a two-block transformer that classifies token sequences (CPU, fp32).

$ python examples/model.py model.pt2
$ aoti-debug triage model.pt2
CLEAN 21 launches in 1 call: no fault, outputs finite, 21 of 21 launches computed what the program says
  note     not independent: 1.0 MiB of what was compared was written by 11 launches that run the same code …
"""

import sys

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        layer = nn.TransformerEncoderLayer(64, nhead=4, dim_feedforward=128, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(self.embedding(tokens))
        return self.head(hidden.mean(dim=1)).log_softmax(dim=-1)


def main() -> None:
    torch.manual_seed(0)
    model = Classifier().eval()
    tokens = torch.randint(0, 1000, (8, 32))
    with torch.no_grad():
        torch.export.save(torch.export.export(model, (tokens,)), sys.argv[1])


if __name__ == "__main__":
    main()
