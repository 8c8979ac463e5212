"""What goes in and out, as models: they check requests and make the OpenAPI document."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from arbormax.model.predict import Decoding
from arbormax.serve.settings import Settings

Decoder = Literal["leaf", "greedy", "threshold"]
Probability = Annotated[float, Field(ge=0, le=1)]
Node = Annotated[int, Field(ge=0, description="number of a node of the taxonomy; 0 is the root")]
TEXT = "Which city has the oldest railroad in the world ?"


class Asked(BaseModel):
    """What every question may say about decoding."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    decoder: Decoder | None = Field(
        None,
        description="leaf (the default): the most probable class; greedy: the best child at each step; "
        "threshold: the deepest node that is more probable than tau",
    )
    tau: float | None = Field(
        None, ge=0, lt=1, allow_inf_nan=False, description="certainty below which to stop; asks for decoder threshold"
    )

    @model_validator(mode="after")
    def _tau_fits(self) -> Self:
        if self.tau is not None and self.decoder not in (None, "threshold"):
            raise ValueError(f"tau belongs to the decoder threshold, not {self.decoder}")
        return self

    def decoding(self, top_k: int = 0) -> Decoding:
        """The same as the library has it."""
        return _decoding(self.decoder, self.tau, top_k)


@lru_cache(maxsize=1024)
def _decoding(decoder: str | None, tau: float | None, top_k: int) -> Decoding:
    return Decoding.choose(decoder, tau, top_k)


class PredictRequest(Asked):
    """One text or many."""

    model_config = ConfigDict(
        title="PredictRequest",
        json_schema_extra={
            "examples": [
                {"text": TEXT},
                {"texts": [TEXT, "Who was Galileo ?"], "top_k": 3},
                {"text": TEXT, "decoder": "threshold", "tau": 0.7},
            ]
        },
    )

    text: str | None = None
    texts: list[str] | None = None
    top_k: int = Field(5, ge=0, le=100, description="how many of the most probable classes to tell as alternatives")

    @model_validator(mode="after")
    def _has_texts(self) -> Self:
        if (self.text is None) == (self.texts is None):
            raise ValueError("give either text or texts")
        return self

    def all_texts(self) -> list[str]:
        """The texts, in their order."""
        return [self.text] if self.text is not None else list(self.texts or ())


class ExplainRequest(Asked):
    """One text, and how much of the tree to show."""

    model_config = ConfigDict(
        title="ExplainRequest",
        json_schema_extra={"examples": [{"text": TEXT}, {"text": TEXT, "siblings": 3, "words": False, "tau": 0.7}]},
    )

    text: str
    siblings: int = Field(5, ge=1, le=100, description="children to tell at each fork, the best ones")
    words: bool = Field(True, description="whether to tell what each word contributed to each step")
    node: Node | None = Field(None, description="explain this node instead of the decoder's answer")


def predict_request(settings: Settings) -> type[PredictRequest]:
    """The request with this service's limits in it, so that the document tells them."""
    text = _text(settings)
    texts = Annotated[list[text], Field(min_length=1, max_length=settings.max_texts)]  # type: ignore[valid-type]
    fields: dict[str, Any] = {"text": (text | None, None), "texts": (texts | None, None)}
    return create_model("PredictRequest", __base__=PredictRequest, **fields)


def explain_request(settings: Settings) -> type[ExplainRequest]:
    """The request with this service's limits in it."""
    fields: dict[str, Any] = {"text": (_text(settings), ...)}
    return create_model("ExplainRequest", __base__=ExplainRequest, **fields)


def _text(settings: Settings) -> Any:
    return Annotated[str, Field(max_length=settings.max_characters)]


class TaxonomyQuery(BaseModel):
    """Which part of the tree to tell: a page of a node's children, or the nodes whose names hold these words."""

    model_config = ConfigDict(extra="forbid")

    node: int = Field(0, ge=0, description="whose children")
    offset: int = Field(0, ge=0, description="how many to leave out")
    limit: int = Field(100, ge=1, le=500, description="how many to tell")
    search: str | None = Field(None, min_length=1, max_length=200, description="words of a name, in any case")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.search is not None and "node" in self.model_fields_set:
            raise ValueError("give node or search: all names are searched")
        return self


class Step(BaseModel):
    node: int
    name: str
    label: str
    probability: Probability


class Alternative(BaseModel):
    label: str
    node: int
    path: list[str]
    probability: Probability


class Prediction(Alternative):
    steps: list[Step] = Field(description="from below the root down to the answer")
    alternatives: list[Alternative] = Field(description="the top_k most probable classes, best first")


class PredictResponse(BaseModel):
    """One prediction for each text, in their order."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "predictions": [
                    {
                        "label": "city",
                        "node": 17,
                        "path": ["LOC", "city"],
                        "probability": 0.87,
                        "steps": [
                            {"node": 3, "name": "LOC", "label": "LOC", "probability": 0.93},
                            {"node": 17, "name": "city", "label": "city", "probability": 0.87},
                        ],
                        "alternatives": [
                            {"label": "city", "node": 17, "path": ["LOC", "city"], "probability": 0.87},
                            {"label": "country", "node": 18, "path": ["LOC", "country"], "probability": 0.04},
                        ],
                    }
                ]
            }
        }
    )

    predictions: list[Prediction]


class ExplainedNode(BaseModel):
    node: int
    name: str
    label: str
    parent: int | None
    depth: int
    probability: float
    conditional: float = Field(description="given its parent")
    on_path: bool
    classes: int
    children: int
    hidden: int = Field(description="children that are not told")
    hidden_probability: float


class ExplainedStep(BaseModel):
    node: int
    name: str
    label: str
    probability: float
    conditional: float
    words: list[float] | None = Field(
        default=None,
        description="what each token contributed to the log of `conditional`: for it above 0, else against",
    )


class Token(BaseModel):
    text: str
    start: int
    end: int


class ExplainResponse(BaseModel):
    """Why a text got its answer: the part of the tree that matters, parents first, and the words at each step."""

    label: str
    node: int
    path: list[str]
    probability: float
    nodes: list[ExplainedNode]
    steps: list[ExplainedStep] = Field(description="from below the root down to the most probable class")
    stopped_at: int = Field(description="steps that the answer takes")
    tokens: list[Token]
    words_method: str | None


class TreeNode(BaseModel):
    node: int
    name: str
    label: str
    classes: int = Field(description="at or below it")
    children: int


class TaxonomyPage(BaseModel):
    """A node, the nodes above it, and a page of its children."""

    name: str
    classes: int
    nodes: int
    depth: int
    fingerprint: str
    node: TreeNode
    ancestors: list[TreeNode] = Field(description="from the root down")
    children: list[TreeNode]
    total: int = Field(description="children that there are")
    offset: int


class Match(BaseModel):
    node: int
    name: str
    label: str
    path: list[str]
    classes: int


class TaxonomyMatches(BaseModel):
    """The nodes whose names hold the words, best first: the whole name, its start, the start of a word, any place."""

    matches: list[Match]
    total: int


class Limits(BaseModel):
    max_texts: int
    max_characters: int
    max_body_bytes: int


class ModelResponse(BaseModel):
    """What is served, and what it takes."""

    name: str
    encoder: str
    head: str
    classes: int
    depth: int
    arbormax: str
    limits: Limits
    examples: list[str]


class ProblemResponse(BaseModel):
    """An error, as RFC 9457 has it."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[dict[str, str]] = Field(default=[], description="where (a JSON pointer) and what")
