"""The settings of a service: where it listens, and its limits."""

from __future__ import annotations

import ipaddress
import math
import re
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

_MIN_KEY_LENGTH = 8
_EXTRA_SHUTDOWN_SECONDS = 5.0  # beyond the time limit of a request
_HEADER_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")


class Settings(BaseModel):
    """The settings of one service; an unknown setting is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(default="127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(default=8000, ge=0, le=65_535, description="port to listen on; 0 selects a free port")
    api_key: SecretStr | None = Field(default=None, description="key that clients must send; None: no key is needed")
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description="values of the Host header that are accepted in addition to local names",
    )
    page: bool = Field(default=True, description="whether to serve the web page at /")
    examples: tuple[str, ...] = Field(
        default=(), description="example texts on the web page; none: texts or names of three classes"
    )

    max_head_bytes: int = Field(default=2**16, ge=1024, description="maximum size of a request head")
    head_seconds: float = Field(default=10.0, gt=0, description="time limit of a request head, and of a new connection")
    max_body_bytes: int = Field(default=4 * 2**20, ge=1024, description="maximum size of a request body")
    max_texts: int = Field(default=1024, ge=1, description="maximum number of texts in a request")
    max_characters: int = Field(default=20_000, ge=1, description="maximum length of a text")
    max_cost_classes: int = Field(
        default=500, ge=1, description="maximum number of classes of a model whose requests may contain costs"
    )
    max_requests: int = Field(default=1024, ge=1, description="maximum number of requests processed at the same time")
    request_seconds: float = Field(default=30.0, gt=0, description="time limit of a request")

    queue: int = Field(default=4096, ge=1, description="maximum number of waiting texts")
    batch_size: int = Field(default=64, ge=1, description="maximum number of texts in a batch")
    batch_wait_ms: float = Field(
        default=1.0, ge=0, le=1000, description="maximum time that a batch waits to fill, under load only"
    )

    log_texts: bool = Field(default=False, description="whether texts and messages of unexpected errors may be logged")

    @field_validator("api_key")
    @classmethod
    def _check_key(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and len(key.get_secret_value()) < _MIN_KEY_LENGTH:
            raise ValueError(f"an API key needs at least {_MIN_KEY_LENGTH} characters")
        if key is not None and not _HEADER_VALUE.fullmatch(key.get_secret_value()):
            raise ValueError("an API key consists of printable ASCII characters, without spaces at its ends")
        return key

    @model_validator(mode="after")
    def _check_queue(self) -> Self:
        if self.queue < self.max_texts:
            raise ValueError(
                f"a request of max_texts = {self.max_texts} texts never fits into a queue of {self.queue}: "
                "increase queue or decrease max_texts"
            )
        return self

    @property
    def shutdown_seconds(self) -> int:
        """Time limit for answering accepted requests after a signal to stop."""
        return math.ceil(self.request_seconds + _EXTRA_SHUTDOWN_SECONDS)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the service."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a host name or address belongs to this machine only."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
