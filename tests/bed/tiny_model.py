"""A tiny Llama with real weights and a byte-level tokenizer, built here: nothing is fetched from a hub.

The weights are random but saved, never vLLM's "dummy" ones: with dummy weights the output hardly depends on
the KV cache, so a test that compares outputs could not see corrupted KV. Everything is drawn from a fixed
seed: the same code builds the same files.

Runs in the engine environment: ``python -m tests.bed.tiny_model OUT``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SEED = 7
LAYERS = 2
HIDDEN = 64
HEADS = 2
# vLLM's CPU attention refuses a head size of 16.
HEAD_DIM = 32
MLP = 128
VOCAB = 512
MAX_POSITIONS = 4096
# Large enough that attention, and so the KV cache, decides the next token.
WEIGHT_SCALE = 0.35
SPECIAL_TOKENS = ("<s>", "</s>", "<pad>")
STAMP = ".complete"

CORPUS = (
    "the quick brown fox jumps over the lazy dog. hello world, memory cache block request tenant " * 4,
    "GPU memory is allocated in blocks; each request holds some blocks until it is freed.",
)
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
SPECIAL_IDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": MLP,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": VOCAB,
    "max_position_embeddings": MAX_POSITIONS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    **SPECIAL_IDS,
}
TOKENIZER_CONFIG: dict[str, Any] = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    **dict(zip(("bos_token", "eos_token", "pad_token"), SPECIAL_TOKENS, strict=True)),
    "model_max_length": MAX_POSITIONS,
    "chat_template": CHAT_TEMPLATE,
}


def write_tokenizer(out: Path) -> None:
    """Train a byte-level BPE of ``VOCAB`` tokens on two sentences: any text is encodable, no download."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.save(str(out / "tokenizer.json"))
    _write_json(out / "tokenizer_config.json", TOKENIZER_CONFIG)


def make_weights() -> dict[str, torch.Tensor]:
    """Return all of the model's tensors by name, float32, drawn from ``SEED``."""
    import torch

    generator = torch.Generator().manual_seed(SEED)

    def draw(*shape: int, scale: float = WEIGHT_SCALE) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * scale

    heads = HEADS * HEAD_DIM
    weights = {"model.embed_tokens.weight": draw(VOCAB, HIDDEN, scale=1.0), "model.norm.weight": torch.ones(HIDDEN)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name in "qkv":
            weights[f"{prefix}self_attn.{name}_proj.weight"] = draw(heads, HIDDEN)
        weights[f"{prefix}self_attn.o_proj.weight"] = draw(HIDDEN, heads)
        weights[f"{prefix}mlp.gate_proj.weight"] = draw(MLP, HIDDEN)
        weights[f"{prefix}mlp.up_proj.weight"] = draw(MLP, HIDDEN)
        weights[f"{prefix}mlp.down_proj.weight"] = draw(HIDDEN, MLP)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{norm}.weight"] = torch.ones(HIDDEN)
    return weights


def build(out: Path) -> bool:
    """Build the model directory ``out``; return False when this very model is already there.

    It is built beside its place and renamed into it, so that an interrupted build leaves no half model.
    """
    stamp = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    if (out / STAMP).is_file() and (out / STAMP).read_text() == stamp:
        return False
    from safetensors.torch import save_file

    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        write_tokenizer(fresh)
        _write_json(fresh / "config.json", CONFIG)
        _write_json(fresh / "generation_config.json", SPECIAL_IDS)
        save_file(make_weights(), fresh / "model.safetensors", metadata={"format": "pt"})
        (fresh / STAMP).write_text(stamp)
        # mkdtemp and safetensors make private things; a model is readable like any other file.
        fresh.chmod(0o755)
        (fresh / "model.safetensors").chmod(0o644)
        if out.exists():
            shutil.rmtree(out)
        os.replace(fresh, out)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return True


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def main() -> None:
    """Build the model in the directory named on the command line."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "build/tiny-model")
    print(f"tiny model {'built in' if build(out) else 'already in'} {out}")


if __name__ == "__main__":
    main()
