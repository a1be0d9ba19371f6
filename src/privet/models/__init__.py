"""Networks by name, what makes them strong in private training, and the repair of others."""

from privet.models import adlm_net as adlm_net
from privet.models import attacked as attacked
from privet.models import contrast as contrast
from privet.models import cosines as cosines
from privet.models import denoised as denoised
from privet.models import groupnorm as groupnorm
from privet.models import local as local
from privet.models import published as published
from privet.models import published_lifelong as published_lifelong
from privet.models import published_noised as published_noised
from privet.models import residual as residual
from privet.models import scatternet as scatternet
from privet.models import signals as signals
from privet.models import wideresnet as wideresnet
from privet.models.finetune import freeze, trainable_report
from privet.models.fronted import Fronted
from privet.models.lora import merge_lora, with_lora
from privet.models.registry import create, default_model, describe, names
from privet.models.repair import without_batchnorm
from privet.models.tokens import Tokens

__all__ = [
    "Fronted",
    "Tokens",
    "create",
    "default_model",
    "describe",
    "freeze",
    "merge_lora",
    "names",
    "trainable_report",
    "with_lora",
    "without_batchnorm",
]
