"""Response clouds from language models: the paper's way of making them, at any OpenAI-compatible endpoint.

A plan settles every request beforehand, from a seed; a journal keeps every reply as it comes; the clouds are written
from the journal. `sample` does all of it.
"""

from streamer.sampling.collecting import Collector, Tally, Vendor
from streamer.sampling.estimating import Estimate, EstimateRow, estimate
from streamer.sampling.output import WrittenFile
from streamer.sampling.plan import SamplingPlan
from streamer.sampling.prompts import Prompt, read_prompts
from streamer.sampling.recipe import PRESETS, Arm, Mix, Recipe
from streamer.sampling.session import Sampled, SamplingSession, connect, sample

__all__ = [
    "PRESETS",
    "Arm",
    "Collector",
    "Estimate",
    "EstimateRow",
    "Mix",
    "Prompt",
    "Recipe",
    "Sampled",
    "SamplingPlan",
    "SamplingSession",
    "Tally",
    "Vendor",
    "WrittenFile",
    "connect",
    "estimate",
    "read_prompts",
    "sample",
]
