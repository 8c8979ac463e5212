"""Studies: many trainings by one protocol, in which nothing is chosen by a look at the test texts."""

from arbormax.training.study.choose import Choice, choose
from arbormax.training.study.plan import Arm, Study
from arbormax.training.study.run import Machine, StudyError, run_studies

__all__ = ["Arm", "Choice", "Machine", "Study", "StudyError", "choose", "run_studies"]
