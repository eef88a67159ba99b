"""Property tests of this folder draw many tensors; how long that takes on a busy machine says nothing."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
