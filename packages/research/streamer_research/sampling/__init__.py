"""Response clouds from language models: the paper's way of making them, at any OpenAI-compatible endpoint.

A plan fixes every request beforehand, from a seed; a journal keeps every reply as it comes; the clouds are written
from the journal. `sample` does all of it.
"""

from streamer_research.sampling.collecting import Collector, SamplingTally, Vendor
from streamer_research.sampling.estimating import CostEstimate, EstimateRow, estimate
from streamer_research.sampling.output import WrittenFile
from streamer_research.sampling.plan import SamplingPlan
from streamer_research.sampling.prompts import Prompt, read_prompts
from streamer_research.sampling.recipe import PRESETS, Arm, Mix, Recipe
from streamer_research.sampling.session import SamplingResult, SamplingSession, connect, sample

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
