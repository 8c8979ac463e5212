"""What the service may take, and where it listens."""

from __future__ import annotations

import ipaddress
import math
import re
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

_SHORTEST_KEY = 8
_GRACE = 5.0  # seconds beyond a request's own limit that shutdown waits for it
_HEADER = re.compile(r"[!-~]([ -~]*[!-~])?")


class Settings(BaseModel):
    """The settings of one service; an unknown one is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(default="127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(default=8000, ge=0, le=65_535, description="0: any free one")
    api_key: SecretStr | None = Field(default=None, description="what callers must show; none: anyone may call")
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description="names in the Host header beside the local ones; checked where it listens on localhost alone",
    )
    page: bool = Field(default=True, description="whether the page is served at /")
    examples: tuple[str, ...] = Field(default=(), description="texts that the page offers to try")

    max_body_bytes: int = Field(default=4 * 2**20, ge=1024, description="of a request")
    max_texts: int = Field(default=1024, ge=1, description="of a request")
    max_characters: int = Field(default=20_000, ge=1, description="of a text")
    max_requests: int = Field(default=1024, ge=1, description="that are read or answered at the same time")
    request_seconds: float = Field(default=30.0, gt=0, description="from the first byte of a request to its answer")

    queue: int = Field(default=4096, ge=1, description="texts that may wait")
    batch_size: int = Field(default=64, ge=1, description="texts that the model takes at a time")
    batch_wait_ms: float = Field(
        default=1.0, ge=0, le=1000, description="longest wait for a batch to fill, under load only"
    )

    log_texts: bool = Field(
        default=False, description="whether texts and the messages of unexpected errors may be logged"
    )

    @field_validator("api_key")
    @classmethod
    def _is_long(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and len(key.get_secret_value()) < _SHORTEST_KEY:
            raise ValueError(f"a key has at least {_SHORTEST_KEY} characters, or it is soon guessed")
        if key is not None and not _HEADER.fullmatch(key.get_secret_value()):
            raise ValueError("a key is sent in a header: letters, digits and signs of ASCII, no space at its ends")
        return key

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.queue < self.max_texts:
            raise ValueError(
                f"a request of max_texts = {self.max_texts} texts never fits a queue of {self.queue}: "
                "make the queue longer or max_texts smaller"
            )
        return self

    @property
    def grace(self) -> int:
        """Seconds that a service has to finish what it accepted."""
        return math.ceil(self.request_seconds + _GRACE)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
