"""How much the service takes on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """How much the service takes on."""

    threads: int = 0
    """Calls of the model at once, of one thread each; 0: as many as there are cores."""
    batch_rows: int = 64
    """Rows per call, of one request or several."""
    batch_wait_ms: float = 2.0
    """How long a request waits for others to share its call."""
    max_rows: int = 256
    """Most rows per request."""
    max_body_kb: int = 256
    """Largest body of a request, in units of 1,024 bytes."""
    max_waiting: int = 1024
    """Rows that may wait for a call, and requests at once, those still being read included; what
    comes beyond is refused with 503."""
