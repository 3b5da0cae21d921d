"""Response clouds from language models: the paper's way of making them, at any OpenAI-compatible endpoint.

A plan fixes every request beforehand, from a seed; a journal keeps every reply as it comes; the clouds are written
from the journal. `sample` does all of it.
"""

from streamer.research.sampling.collecting import Collector, SamplingTally, Vendor
from streamer.research.sampling.estimating import CostEstimate, EstimateRow, estimate
from streamer.research.sampling.output import WrittenFile
from streamer.research.sampling.plan import SamplingPlan
from streamer.research.sampling.prompts import Prompt, read_prompts
from streamer.research.sampling.recipe import PRESETS, Arm, Mix, Recipe
from streamer.research.sampling.session import SamplingResult, SamplingSession, connect, sample

__all__ = [
    "PRESETS",
    "Arm",
    "Collector",
    "CostEstimate",
    "EstimateRow",
    "Mix",
    "Prompt",
    "Recipe",
    "SamplingPlan",
    "SamplingResult",
    "SamplingSession",
    "SamplingTally",
    "Vendor",
    "WrittenFile",
    "connect",
    "estimate",
    "read_prompts",
    "sample",
]
