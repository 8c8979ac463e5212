"""Studies: many trainings by one protocol, in which nothing is chosen by a look at the test texts."""

from study.choice import Choice, choose
from study.plan import Arm, Study
from study.runner import Machine, StudyError, run_studies

__all__ = ["Arm", "Choice", "Machine", "Study", "StudyError", "choose", "run_studies"]
