"""Federated learning: rules, a coordinator of rounds, users' privacy, a simulator."""

from privet.federation.coordinator import Answer, Closed, Closing, Coordinator
from privet.federation.fitting import resume, simulate
from privet.federation.local_work import Lesson, LocalWork, Material, Teacher
from privet.federation.one_by_one import OneByOne
from privet.federation.rules import RULES, rule_named
from privet.federation.simulator import Simulator, Weather
from privet.federation.together import Together
from privet.federation.update import Update
from privet.federation.user_privacy import UserPrivacy
from privet.privacy.participation import Capped, Sampled

__all__ = [
    "RULES",
    "Answer",
    "Capped",
    "Closed",
    "Closing",
    "Coordinator",
    "Lesson",
    "LocalWork",
    "Material",
    "OneByOne",
    "Sampled",
    "Simulator",
    "Teacher",
    "Together",
    "Update",
    "UserPrivacy",
    "Weather",
    "resume",
    "rule_named",
    "simulate",
]
