"""A study: many trainings with one protocol, which selects all settings without the test texts."""

from study.choice import Choice, choose
from study.plan import Arm, Study
from study.runner import Machine, StudyError, run_studies

__all__ = ["Arm", "Choice", "Machine", "Study", "StudyError", "choose", "run_studies"]
