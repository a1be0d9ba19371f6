"""Published mechanisms under audit, as their public code or text has them; one file each."""

from typing import Final

from privet.audits.mechanism import Entry
from privet.audits.papers import adlm, igamt, l2dp, securesgd, stobatch, transdenoiser

PAPERS: Final[dict[str, Entry]] = {
    "adlm": Entry(
        kind="paper",
        summary="AdLM (2017): lower layers learn from labels without noise.",
        make=adlm.weights,
    ),
    "adlm-affine": Entry(
        kind="paper",
        summary="AdLM (2017): all records share the noise of the affine layer.",
        make=adlm.affine,
    ),
    "adlm-relevance": Entry(
        kind="paper",
        summary="AdLM (2017): relevance of a network that is trained on the records.",
        make=adlm.relevances,
    ),
    "igamt": Entry(
        kind="paper",
        summary="IGAMT, thesis: the imitator learns from the records without noise.",
        make=igamt.thesis,
    ),
    "igamt-aaai": Entry(
        kind="paper",
        summary="IGAMT, AAAI: noise on the last layer, exact gradients in the body.",
        make=igamt.aaai,
    ),
    "igamt-clipping": Entry(
        kind="paper",
        summary="IGAMT: clips the mean of the batch, and adds noise that does not know C.",
        make=igamt.clipping,
    ),
    "igamt-sound": Entry(
        kind="paper",
        summary="IGAMT with every record clipped and noised: keeps its claim (a minute).",
        make=igamt.sound,
    ),
    "l2dp-inputs": Entry(
        kind="paper",
        summary="L2DP-ML, thesis: one draw of noise for all records of all tasks.",
        make=l2dp.inputs,
    ),
    "l2dp-labels": Entry(
        kind="paper",
        summary="L2DP-ML, thesis: all classes share the noise on the labels.",
        make=l2dp.labels,
    ),
    "l2dp-rank": Entry(
        kind="paper",
        summary="L2DP-ML, thesis: a gradient of the first layer, with noise of rank two.",
        make=l2dp.rank,
    ),
    "l2dp-sound": Entry(
        kind="paper",
        summary="L2DP-ML with one noised objective for a task: keeps its claim.",
        make=l2dp.sound,
    ),
    "securesgd": Entry(
        kind="paper",
        summary="SecureSGD (2019), public code: clips the mean of the batch.",
        make=securesgd.weights,
    ),
    "securesgd-bias": Entry(
        kind="paper",
        summary="SecureSGD (2019), public code: seen at the bias, which is not clipped.",
        make=securesgd.bias,
    ),
    "stobatch": Entry(
        kind="paper",
        summary="StoBatch, DPAL (2020), text: a step, the noise fitted to the weights (minutes).",
        make=stobatch.training,
    ),
    "stobatch-labels": Entry(
        kind="paper",
        summary="StoBatch, DPAL (2020), text: labels reach the lower layers without noise.",
        make=stobatch.labels,
    ),
    "stobatch-batch": Entry(
        kind="paper",
        summary="StoBatch, DPAL (2020), text: one draw of noise for all records of a batch.",
        make=stobatch.batch,
    ),
    "transdenoiser": Entry(
        kind="paper",
        summary="TransDenoiser: noise on gradients falls with what noise on images is credited.",
        make=transdenoiser.updates,
    ),
}
