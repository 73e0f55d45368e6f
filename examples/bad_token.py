"""A script as one runs it: compiles a small language model with AOTInductor and calls it. One token id is too large.

$ python examples/bad_token.py                # ends in an assertion of generated code that names no line of the model
$ aoti-debug triage examples/bad_token.py     # names the element of the input, the launch and the line
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import nn

VOCABULARY, WIDTH, LENGTH = 100, 32, 6


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(ids)
        return self.head(hidden + self.mlp(hidden)).log_softmax(-1)


def main() -> None:
    torch.manual_seed(0)
    example = torch.randint(0, VOCABULARY, (4, LENGTH))
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        program = torch.export.export(LanguageModel().eval(), (example,))
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(Path(folder) / "model.pt2"))
        model = torch._inductor.aoti_load_package(package)
        for step in range(3):
            ids = torch.randint(0, VOCABULARY, (4, LENGTH))
            if step == 2:
                ids[2, 5] = VOCABULARY
            print(f"step {step}: token {model(ids)[0, -1].argmax().item()}")


if __name__ == "__main__":
    main()
