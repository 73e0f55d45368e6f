"""Ten scripts that use AOTInductor as public tutorials and model zoos do, written anew; each with a fault to plant.

What they resemble: the tutorials of AOTInductor's Python runtime and of torch.export, the exports of gpt-fast and
torchchat, segment-anything-fast, the diffusers of Hugging Face Spaces, TorchRec's inference, torchvision's detection
models, torchaudio's recognisers, Torch-TensorRT's pair of a compiling and a loading script, and a server with threads.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PublicScript:
    """A script.

    Attributes:
        arguments: of its command line.
        healthy: a line of it.
        faulty: what takes its place, and has a fault.
        operator: that makes the number that is not finite, or fails; a part of the kernel's name.
        line: of the model, which computes it; "" where that is `faulty`, and not a later line that takes its result.
        kind: of the finding.
        torch_compile: its graphs of `torch.compile` are recorded, too.
    """

    name: str
    text: str
    healthy: str
    faulty: str
    operator: str
    line: str = ""
    kind: str = "nonfinite"
    arguments: tuple[str, ...] = ()
    torch_compile: bool = False

    @property
    def guilty(self) -> str:
        """The line that a triage has to name."""
        return (self.line or self.faulty).strip()

    @property
    def planted(self) -> str:
        """The script with its fault."""
        assert self.text.count(self.healthy) == 1, self.name
        return self.text.replace(self.healthy, self.faulty)


MLP = PublicScript(
    "docs_mlp",
    """
import os
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(10, 16)
        self.relu = torch.nn.ReLU()
        self.fc2 = torch.nn.Linear(16, 1)
        self.sigmoid = torch.nn.Sigmoid()

    def forward(self, x):
        x = self.relu(self.fc1(x))
        scale = x.sum(1, keepdim=True) + 1
        x = x / scale
        return self.sigmoid(self.fc2(x))

torch.manual_seed(0)
with torch.no_grad():
    model = Model().eval()
    example_inputs = (torch.randn(8, 10),)
    batch_dim = torch.export.Dim("batch", min=1, max=1024)
    exported = torch.export.export(model, example_inputs, dynamic_shapes={"x": {0: batch_dim}})
    output_path = torch._inductor.aoti_compile_and_package(
        exported, package_path=os.path.join(os.getcwd(), "model.pt2"))
loaded = torch._inductor.aoti_load_package(output_path)
for batch in (1, 4, 8):
    print(loaded(torch.ones(batch, 10)).mean().item())
""",
    "        scale = x.sum(1, keepdim=True) + 1",
    "        scale = (x.sum(1, keepdim=True) - 1e9).log()",
    operator="log",
)

RESNET = PublicScript(
    "tutorial_residual_network",
    """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return (self.norm(self.conv(x)) + x).relu()

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 7, stride=2, padding=3)
        self.blocks = nn.Sequential(Block(8), Block(8))
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        features = self.blocks(self.stem(x)).mean((2, 3))
        length = features.pow(2).sum(1, keepdim=True)
        features = features / length.sqrt()
        return self.head(features)

torch.manual_seed(0)
model = Network().eval()
with torch.inference_mode():
    inputs = (torch.randn(2, 3, 32, 32),)
    program = torch.export.export(model, inputs, dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=32)},))
    path = torch._inductor.aoti_compile_and_package(
        program, package_path="resnet.pt2", inductor_configs={"max_autotune": False})
    network = torch._inductor.aoti_load_package(path)
    result = network(*inputs)
    print(torch.allclose(result, model(*inputs), atol=1e-4), result.argmax(1).tolist())
""",
    "        length = features.pow(2).sum(1, keepdim=True)",
    "        length = features.pow(2).sum(1, keepdim=True) - 1000",
    operator="sqrt",
    line="features = features / length.sqrt()",
)

GENERATE = PublicScript(
    "generate_with_cache",
    """
import torch
from torch import nn

class Decoder(nn.Module):
    def __init__(self, vocabulary=64, width=32, longest=16):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, vocabulary)
        self.register_buffer("keys", torch.zeros(longest, width))
        self.register_buffer("values", torch.zeros(longest, width))

    def forward(self, token, position):
        x = self.embedding(token)
        query, key, value = self.qkv(x).chunk(3, -1)
        self.keys.index_copy_(0, position, key)
        self.values.index_copy_(0, position, value)
        mask = torch.arange(self.keys.shape[0]) <= position
        scores = (query @ self.keys.t()) / 32 ** 0.5
        scores = scores.masked_fill(~mask, -1e9).softmax(-1)
        return self.out(scores @ self.values)

if __name__ == "__main__":
    torch.manual_seed(0)
    model = Decoder().eval()
    example = (torch.tensor([1]), torch.tensor([0]))
    with torch.no_grad():
        program = torch.export.export(model, example)
    path = torch._inductor.aoti_compile_and_package(program, package_path="decoder.pt2")
    decode = torch._inductor.aoti_load_package(path)
    token, text = torch.tensor([1]), []
    for position in range(8):
        logits = decode(token, torch.tensor([position]))
        token = logits.argmax(-1)
        text.append(token.item())
    print(text)
""",
    "        scores = scores.masked_fill(~mask, -1e9).softmax(-1)",
    "        scores = (scores - scores).log().masked_fill(mask, 0) / (scores - scores)",
    operator="div",
)

CHAT = PublicScript(
    "export_with_arguments",
    """
import argparse
import torch
from torch.nn import functional as F

class FeedForward(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.w1 = torch.nn.Linear(width, hidden, bias=False)
        self.w2 = torch.nn.Linear(hidden, width, bias=False)
        self.w3 = torch.nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        norm = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(norm + 1e-5)
        return self.w2(F.silu(self.w1(x)) * self.w3(x))

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output-path", required=True)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("-v", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(FeedForward(16, 32) for _ in range(args.layers))).eval()
    x = torch.randn(1, 5, 16)
    with torch.no_grad():
        program = torch.export.export(model, (x,))
    torch._inductor.aoti_compile_and_package(program, package_path=args.output_path)
    runner = torch._inductor.aoti_load_package(args.output_path)
    print(args, runner(x).abs().sum().item())

main()
""",
    "        norm = x.pow(2).mean(-1, keepdim=True)",
    "        norm = x.pow(2).mean(-1, keepdim=True) - 50",
    operator="rsqrt",
    line="x = x * torch.rsqrt(norm + 1e-5)",
    arguments=("--output-path", "dso.pt2", "--layers", "3", "-v"),
)

SEGMENT = PublicScript(
    "two_models_in_a_package",
    """
import torch
from torch._inductor.package import load_package, package_aoti

class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 16, 4, stride=4)

    def forward(self, image):
        return self.patches(image).flatten(2).transpose(1, 2)

class Mask(torch.nn.Module):
    def forward(self, tokens, point):
        distance = (tokens - point).abs().mean(-1)
        weights = 1 / (distance + 1)
        return weights / weights.sum(-1, keepdim=True)

torch.manual_seed(0)
image, point = torch.randn(1, 3, 16, 16), torch.randn(1, 1, 16)
encoder, mask = Encoder().eval(), Mask()
with torch.no_grad():
    tokens = encoder(image)
    parts = {}
    for name, model, inputs in (("encoder", encoder, (image,)), ("mask", mask, (tokens, point))):
        program = torch.export.export(model, inputs)
        parts[name] = torch._inductor.aot_compile(
            program.module(), inputs, options={"aot_inductor.package": True})
    package_aoti("segment.pt2", parts)
encode, segment = load_package("segment.pt2", "encoder"), load_package("segment.pt2", "mask")
print(round(segment(encode(image), point).sum().item(), 4))
""",
    "        weights = 1 / (distance + 1)",
    "        weights = (distance - 100).sqrt()",
    operator="sqrt",
)

DIFFUSION = PublicScript(
    "denoising_loop",
    """
import torch
from torch import nn

class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(4, 8, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 4, stride=2, padding=1)
        self.time = nn.Linear(8, 8)

    def forward(self, latent, step):
        phase = step * torch.arange(1, 9) / 8
        hidden = self.down(latent).tanh() + self.time(phase.sin())[None, :, None, None]
        noise = self.up(hidden)
        return latent - 0.1 * noise

torch.manual_seed(0)
denoiser = Denoiser().eval()
latent, step = torch.randn(1, 4, 8, 8), torch.tensor(1.0)
with torch.no_grad():
    program = torch.export.export(denoiser, (latent,), kwargs={"step": step})
    compiled = torch._inductor.aoti_load_package(torch._inductor.aoti_compile_and_package(program))
    for number in range(5, 0, -1):
        latent = compiled(latent, step=torch.tensor(float(number)))
print(round(latent.sum().item(), 3))
""",
    "        noise = self.up(hidden)",
    "        noise = self.up(hidden) / (step - step.round())",
    operator="div",
)

RECOMMEND = PublicScript(
    "embedding_lookup",
    """
import torch

class Ranker(torch.nn.Module):
    def __init__(self, rows=100, width=8):
        super().__init__()
        self.users = torch.nn.Embedding(rows, width)
        self.items = torch.nn.Embedding(rows, width)
        self.top = torch.nn.Linear(2 * width, 1)

    def forward(self, user, items):
        shift = torch.zeros_like(items)
        rows = self.items(items + shift)
        pooled = rows.mean(1)
        return self.top(torch.cat([self.users(user), pooled], -1)).sigmoid()

torch.manual_seed(0)
ranker = Ranker().eval()
user, items = torch.tensor([3, 5]), torch.randint(0, 100, (2, 6))
batch = torch.export.Dim("batch", max=64)
with torch.no_grad():
    program = torch.export.export(ranker, (user, items), dynamic_shapes=({0: batch}, {0: batch}))
package = torch._inductor.aoti_compile_and_package(program, package_path="ranker.pt2")
rank = torch._inductor.aoti_load_package(package)
for request in range(3):
    print(rank(user, items)[:, 0].tolist())
""",
    "        shift = torch.zeros_like(items)",
    "        shift = items.argmax(1, keepdim=True) * 0 + 1000",
    operator="embedding",
    line="rows = self.items(items + shift)",
    kind="fault",
)

DETECT = PublicScript(
    "boxes_of_a_detector",
    """
import torch

class Boxes(torch.nn.Module):
    def forward(self, boxes, scores):
        best, order = scores.topk(4)
        chosen = boxes[order]
        size = chosen[:, 2:] - chosen[:, :2]
        area = size.prod(-1)
        ratio = area / area.amax()
        return chosen, best * ratio

torch.manual_seed(0)
corners = torch.rand(10, 2)
boxes, scores = torch.cat([corners, corners + torch.rand(10, 2) + 0.1], 1), torch.rand(10)
with torch.no_grad():
    program = torch.export.export(Boxes(), (boxes, scores))
path = torch._inductor.aoti_compile_and_package(program, package_path="boxes.pt2")
detect = torch._inductor.aoti_load_package(path)
found, confidence = detect(boxes, scores)
print(found.shape, [round(value, 4) for value in confidence.tolist()])
""",
    "        ratio = area / area.amax()",
    "        ratio = (area - area) / (area - area)",
    operator="div",
)

SPEECH = PublicScript(
    "operator_of_its_own",
    """
import torch

@torch.library.custom_op("speech::window", mutates_args=())
def window(samples: torch.Tensor, size: int) -> torch.Tensor:
    if samples.shape[-1] < size:
        raise ValueError(f"{samples.shape[-1]} samples are less than {size}")
    return samples.unfold(-1, size, size).contiguous()

@window.register_fake
def _(samples, size):
    return samples.new_empty(*samples.shape[:-1], samples.shape[-1] // size, size)

class Recogniser(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(16, 5)

    def forward(self, samples):
        frames = torch.ops.speech.window(samples * 2, 16)
        return self.mix(frames.abs()).log_softmax(-1)

torch.manual_seed(0)
samples = torch.randn(1, 64)
with torch.no_grad():
    program = torch.export.export(Recogniser().eval(), (samples,))
path = torch._inductor.aoti_compile_and_package(program, package_path="speech.pt2")
recognise = torch._inductor.aoti_load_package(path)
print(recognise(samples).argmax(-1).tolist())
""",
    "    if samples.shape[-1] < size:",
    "    if samples.shape[-1] < 100 * size and type(samples) is torch.Tensor:",
    operator="window",
    line="frames = torch.ops.speech.window(samples * 2, 16)",
    kind="fault",
)

SERVER = PublicScript(
    "server_with_threads",
    """
import io
import sys
from concurrent.futures import ThreadPoolExecutor
import torch

class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1)
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        weights = weights / weights.sum(-1, keepdim=True)
        return weights @ v

torch.manual_seed(0)
q, k, v = (torch.randn(2, 4, 8) for _ in range(3))
program = torch.export.export(Attention(), (q, k, v))
buffer = io.BytesIO()
torch._inductor.aoti_compile_and_package(program, package_path=buffer)
buffer.seek(0)
model = torch._inductor.aoti_load_package(buffer)

def serve(number):
    return round(model(q * number, k, v).sum().item(), 3)

with ThreadPoolExecutor(4) as pool:
    print(list(pool.map(serve, range(12))))
sys.exit(3)
""",
    "        weights = torch.exp(scores - scores.amax(-1, keepdim=True))",
    "        weights = torch.exp(scores + 100) - torch.exp(scores + 100)",
    operator="exp",
)

SCRIPTS = (MLP, RESNET, GENERATE, CHAT, SEGMENT, DIFFUSION, RECOMMEND, DETECT, SPEECH, SERVER)
