"""For all tests: how hypothesis judges them."""

from hypothesis import HealthCheck, settings

# A slow machine is not a fault of what is tested, nor is a folder that all examples of a test share.
checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("curator", deadline=None, suppress_health_check=checks)
settings.load_profile("curator")
