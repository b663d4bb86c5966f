# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Read a result
#
# Every run of a table leaves one JSON file: what was measured, and all that is needed to make it
# again. Pages are rendered from these files alone, and so can any question of one's own be
# answered. Here: is RoPE better than LRPE's type 2 under linear attention, in Table 2 at scale
# `mini`? It needs the extra `train`, and a checkout, which holds the published results.

# %%
import json
from pathlib import Path

from fairseq_plugins.statistics.inference import difference, pooled_spread

ROOT = Path(__file__).parents[1] if "__file__" in globals() else Path.cwd()
FOLDER = ROOT / "results" / "table2" / "mini"

# %% [markdown]
# ## One run

# %%
run = json.loads((FOLDER / "rope-linear-s1.json").read_text(encoding="utf-8"))
print(*run, sep=", ")
for name in ("valid_ppl", "test_ppl", "updates", "parameters"):
    print(f"{name:10} {run['metrics'][name]}")
print("commit", run["commit"][:12], "on", run["hardware"].get("cpu", run["hardware"]))
print(run["command"][0][:96], "...")

# %% [markdown]
# The model's options are in its configuration; settings that many runs share are in the recipe that
# it names.

# %%
model = run["config"]["model"]
print({name: model[name] for name in ("position_encoding", "attention_type", "decoder_layers")})

# %% [markdown]
# ## One row: all its seeds


# %%
def seeds_of(row: str, attention: str, metric: str = "test_ppl") -> dict[int, float]:
    """What a row measured, by seed."""
    found = {}
    for path in sorted(FOLDER.glob(f"{row}-{attention}-s*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        assert (result["row"], result["attention"]) == (row, attention)
        found[result["seed"]] = result["metrics"][metric]
    return found


rows = {row: seeds_of(row, "linear") for row in ("base", "rope", "lrpe_type2")}
for row, seeds in rows.items():
    values = " ".join(f"{value:7.2f}" for value in seeds.values())
    print(f"{row:11} {sum(seeds.values()) / len(seeds):7.2f}   of {values}")

# %% [markdown]
# ## Two rows: a difference, and how sure it is
#
# Runs of one seed see their data in the same order, so rows are compared seed by seed. `low` and
# `high` are the 95 % interval; where zero lies outside of it, the difference is significant as
# long as no other pair is read beside it. With one seed a row has no interval of its own: there
# `spread`, what seeds do in all rows, stands in for it.

# %%
spread = pooled_spread(rows.values())
print(f"a seed alone moves a perplexity by {spread.deviation:.2f}")
found = difference([rows["rope"]], [rows["lrpe_type2"]], spread)
print(
    f"rope - lrpe_type2: {found.effect:+.2f}, between {found.low:+.2f} and {found.high:+.2f}, "
    f"over {found.seeds} seeds:",
    "significant by itself" if found.is_significant else "not significant",
)

# %% [markdown]
# Where many rows are read together some will differ by chance; the pages correct for that
# (Holm), as `docs/reading.md` says. Corrected for all pairs of Table 2 this difference is a tie, as
# `results/claims.md` notes beside its verdict on the single pair.
