"""Human activities: what people did while sensors on them measured, with whose records they are.

sessions.py   signals of one user, resampled, and cut into windows
by_user.py    windows or rows of users as a data set whose unit is the user
hapt.py       a phone at the waist, 30 users; watch.py: a watch in physiotherapy, 10 users
wisdm.py      a phone in the pocket, 36 users, as features of ten seconds
simulated.py  made-up phones, 60 users
named.py      all of them as data sets by name

Ranges, users and classes are literals: what sensors and studies are known for, never read off
the signals. Nothing is centred or scaled by what the data show.
"""

from privet.data.activities.by_user import About, Examples, dataset_of
from privet.data.activities.hapt import load_hapt
from privet.data.activities.sessions import Segment, Session, cut, resampled
from privet.data.activities.watch import load_watch
from privet.data.activities.wisdm import load_wisdm

__all__ = [
    "About",
    "Examples",
    "Segment",
    "Session",
    "cut",
    "dataset_of",
    "load_hapt",
    "load_watch",
    "load_wisdm",
    "resampled",
]
