from tests.student.conftest import bert, student

__all__ = ["bert", "student"]
