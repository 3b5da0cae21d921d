"""The frameworks, one file each; `ALL` by their names at the command line."""

from streamer.audit.evidence.frameworks.eu_ai_act import EU_AI_ACT
from streamer.audit.evidence.frameworks.iso_42001 import ISO_42001
from streamer.audit.evidence.frameworks.nist_ai_rmf import NIST_AI_RMF
from streamer.audit.evidence.frameworks.soc2 import SOC2

ALL = {one.name: one for one in (EU_AI_ACT, ISO_42001, NIST_AI_RMF, SOC2)}
