"""The training step of a language model, relative to fairseq's own."""

from benchmarks.context import Context, Settings
from benchmarks.limits import count_work, peak_settings
from benchmarks.models import language_model_step
from benchmarks.record import Found
from benchmarks.reference import check_attention
from benchmarks.timing import Pace, interleave
from fairseq_plugins.attention import ATTENTIONS

FAIRSEQ = "transformer_lm"


def language_model_settings(device: str, quick: bool) -> Settings:
    """Choose sizes of a language model whose step takes seconds at most."""
    gpu = device == "gpu"
    return {
        "layers": 1 if quick else 6 if gpu else 4,
        "width": 32 if quick else 512,
        "heads": 2 if quick else 8,
        "ffn": 64 if quick else 2048,
        "dictionary": 50 if quick else 1000,
        "batch": 16 if gpu else 1,
        "lengths": [16, 32] if quick else [512, 2048],
        "dtype": "bfloat16 (autocast)" if gpu else "float32",
        "pace": vars(Pace(0.05, 2, 3) if quick else Pace(30.0, 5, 30)),
        "peaks": peak_settings(device, quick),
    }


def run_language_model(settings: Settings, context: Context) -> Found:
    """Time forward, backward and update, relative to fairseq's ``transformer_lm``."""
    found = Found()
    for attention in ATTENTIONS:
        check_attention(attention, causal=True, device=context.device, dtype=context.dtype)
    for length in settings["lengths"]:
        steps = {FAIRSEQ: language_model_step(settings, length, context, None)}
        for attention in ATTENTIONS:
            steps[attention] = language_model_step(settings, length, context, attention)
        samples = interleave(steps, Pace(**settings["pace"]), context.device)
        found.add(samples, f"@{length}")
        for name, step in steps.items():
            found.work[f"{name}@{length}"] = count_work(step)
        for attention in ATTENTIONS:
            key = f"{attention}/{FAIRSEQ}@{length}"
            found.add_ratio(key, samples.ratios(attention, FAIRSEQ))
            context.say(f"  {key}: {found.ratios[key]:.2f}")
    return found
