"""All networks of one member of the IGAMT family, in one module.

| symbol        | here         | where there is one                                   |
|---------------|--------------|------------------------------------------------------|
| Enc           | `encoder`    | `encoder`                                            |
| Dec           | `decoder`    | always; without the last layer                       |
| W_x, W_m      | `last`       | always; the imitator shares it                       |
| Dec_i         | `imitator`   | `imitator`                                           |
| G             | `generator`  | by the form                                          |
| D_x, D_m, D_z | `critic_x`.. | `critic_x`, `critic_m`, `critic_z`                   |
| p(start)      | `start`      | by the form                                          |
|               | `spread`     | by the form: deviations of values around what is said |
"""

from collections.abc import Collection
from typing import Final, final

import torch
from torch import nn

from privet.data.records.schema import Schema
from privet.models.record_coders import DecoderBody, Encoder, LastLayer
from privet.models.record_critics import RowCritic, VectorCritic
from privet.models.record_maker import Form, RecordMaker, Spread
from privet.models.record_rows import RecordRows
from privet.models.start_model import StartModel

PARTS: Final = ("encoder", "imitator", "critic_x", "critic_m", "critic_z")


@final
class RecordNetworks(nn.Module):
    """The parts of a family member; see the module's words.

    Args:
        form: of what will be released.
        schema: of the records.
        parts: which of `PARTS` there are.
        variational: whether z is a law.
        bounded: whether z lies within -1 and 1.
        shared: whether encoder and decoder embed rows alike, as the papers' public program does.
        critic_dropout: of the critics of rows.
        init_seed: of the first weights; public.
    """

    def __init__(
        self,
        form: Form,
        schema: Schema,
        *,
        parts: Collection[str],
        variational: bool = False,
        bounded: bool = True,
        shared: bool = True,
        critic_dropout: float = 0.0,
        init_seed: int = 0,
    ) -> None:
        super().__init__()
        assert set(parts) <= set(PARTS), parts
        self.form, self.schema = form, schema
        self.shape = shape = form.shape(schema)
        features = shape.sizes.features

        def rows(name: str, width: int) -> RowCritic | None:
            return RowCritic(width, dropout=critic_dropout) if name in parts else None

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(init_seed)
            self.reader = RecordRows(shape.sizes)
            embedding = shape.embedding()
            self.encoder = (
                Encoder(shape, embedding, variational=variational, bounded=bounded)
                if "encoder" in parts
                else None
            )
            self.decoder = DecoderBody(shape, embedding if shared else shape.embedding())
            self.last = LastLayer(form.width, features)
            self.imitator = DecoderBody(shape, shape.embedding()) if "imitator" in parts else None
            self.generator = form.generator(shape) if "generator" in form.flags else None
            self.critic_x = rows("critic_x", features)
            self.critic_m = rows("critic_m", features)
            self.critic_z: RowCritic | VectorCritic | None = (
                VectorCritic(form.latent)
                if "critic_z" in parts and shape.latent_steps is None
                else rows("critic_z", form.latent)
            )
            self.start = StartModel(shape.sizes.start) if "start" in form.flags else None
            self.spread = Spread(features) if "spread" in form.flags else None

    def maker(self) -> RecordMaker:
        """A copy of what is released: no encoder, no critic; the imitator where there is one."""
        maker = RecordMaker(self.form, self.schema)
        released = {
            "body": self.decoder if self.imitator is None else self.imitator,
            "last": self.last,
            "generator": self.generator,
            "start": self.start,
            "spread": self.spread,
        }
        for name, part in released.items():
            if part is not None:
                maker.get_submodule(name).load_state_dict(part.state_dict())
        return maker
