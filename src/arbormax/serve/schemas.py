"""Requests and responses as Pydantic models: they validate requests and generate the OpenAPI document.

Names of decoders, encoders and heads, and the options of decoders, come from the registries when an application is
created.
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, field_validator, model_validator

from arbormax.decode import DECODERS, option_names
from arbormax.encoders import ENCODERS
from arbormax.heads import HEADS
from arbormax.serve.settings import Settings
from arbormax.uncertainty.conformal import MOST_NODES

Probability = Annotated[float, Field(ge=0, le=1)]
Node = Annotated[int, Field(ge=0, description="number of a node of the taxonomy; 0 is the root")]
Columns = Annotated[
    dict[str, str | int | float | None],
    Field(description="the columns of a row, for a model that was trained on several columns"),
]
Cost = Annotated[float, Field(ge=0)]
Text = str | Columns
Nodes = list[str | int]  # labels, '/'-paths or numbers of nodes
REQUIRED = inspect.Parameter.empty
_PLAIN_TYPES = (bool, int, float, str)
_DEFAULT_TOP_K, _MAX_TOP_K = 5, 100
TEXT = "Which city has the oldest railroad in the world ?"


def decoder_options() -> dict[str, dict[str, inspect.Parameter]]:
    """The decoders of the service with their options: parameters after the log-probabilities and the taxonomy.

    Only options that are plain values, or None, can be sent as JSON; a decoder that requires another one is not
    available.
    """
    decoders = {}
    for name in DECODERS:
        types = get_type_hints(DECODERS[name])
        options = [
            option.replace(annotation=_plain_type(types.get(option.name)))
            for option in list(inspect.signature(DECODERS[name]).parameters.values())[2:]
        ]
        plain = {option.name: option for option in options if option.annotation in _PLAIN_TYPES}
        if all(option.name in plain or option.default is not REQUIRED for option in options):
            decoders[name] = plain
    return decoders


def takes_costs(decoder: str) -> bool:
    """Whether a decoder has the option `costs`, which a request contains as an object."""
    return "costs" in option_names(DECODERS[decoder])


def _plain_type(annotation: Any) -> Any:
    """The type of an option, `float` for `float | None`."""
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 else annotation


class Costs(BaseModel):
    """The cost of each predicted class (a row) for each true class (a column)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    rows: list[list[Cost]] = Field(description="one row for each predicted class, one column for each true class")
    classes: list[str] | None = Field(
        None, description="labels of the classes in the order of rows and columns; by default that of the model"
    )


class DecodingRequest(BaseModel):
    """The fields that select a decoder; `_with_decoders` adds one field for each option of a decoder."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    option_names: ClassVar[tuple[str, ...]] = ()

    decoder: str | None = None
    within: Nodes | None = Field(
        None, description="only classes at or below these nodes: labels, '/'-paths or numbers of nodes"
    )
    without: Nodes | None = Field(None, description="no classes at or below these nodes")
    coverage: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="instead of a decoder: the lowest node that contains the truth with this probability, of a model "
        "that was calibrated with coverage",
    )

    costs: Costs | None = Field(None, description="costs of the metric risk of the decoder optimal")

    @field_validator("within", "without", mode="before")
    @classmethod
    def _check_nodes(cls, nodes: Any) -> Any:
        if isinstance(nodes, (str, int)):
            raise ValueError("expected a list of nodes, also of a single one")
        return nodes

    def options(self) -> dict[str, Any]:
        """The options that the request contains."""
        return {name: value for name in self.option_names if (value := getattr(self, name)) is not None}


class PredictRequest(DecodingRequest):
    """One text or several."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"text": TEXT},
                {"texts": [TEXT, "Who was Galileo ?"], "top_k": 3},
                {"text": TEXT, "decoder": "threshold", "tau": 0.7},
                {"texts": [TEXT, "Who was Galileo ?"], "within": [[1], None]},
                {"text": TEXT, "decoder": "optimal", "metric": "risk"},
            ]
        }
    )

    text: Text | None = None
    texts: list[Text] | None = None
    top_k: int = Field(_DEFAULT_TOP_K, ge=0)
    within: Nodes | list[Nodes | None] | None = Field(  # type: ignore[assignment]
        None,
        description="only classes at or below these nodes: labels, '/'-paths or numbers of nodes; or one list for "
        "each text, where null allows all classes",
    )
    without: Nodes | list[Nodes | None] | None = Field(  # type: ignore[assignment]
        None, description="no classes at or below these nodes, in the forms of within"
    )
    max_nodes: int | None = Field(
        None, ge=1, le=MOST_NODES, description="with coverage: also a set of at most this many nodes with the truth"
    )
    groups: Literal["branch"] | dict[str, str] | None = Field(
        None,
        description="with coverage: the set has it within each branch below the root, or within groups of classes, a "
        "mapping from labels to groups",
    )

    @model_validator(mode="after")
    def _check_texts(self) -> Self:
        if (self.text is None) == (self.texts is None):
            raise ValueError("give either text or texts")
        return self


class ExplainRequest(DecodingRequest):
    """One text, and how much of the tree to return."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": TEXT}, {"text": TEXT, "siblings": 3, "tau": 0.7}]}
    )

    text: Text
    siblings: int = Field(5, ge=1, le=100, description="maximum number of children at each step, the most probable")
    words: bool = Field(True, description="whether to return the contribution of each word to each step")
    node: Node | None = Field(None, description="explain this node instead of the predicted one")


M = TypeVar("M", bound=DecodingRequest)


def _costs_field(settings: Settings, num_classes: int) -> Any:
    """The type and the value of the field `costs`: a square of the size of the model, if it is not too large."""
    description = DecodingRequest.model_fields["costs"].description
    if num_classes > settings.max_cost_classes:
        reason = f"not available, because the model has more than {settings.max_cost_classes:,} classes"

        def refuse(value: Any) -> None:
            if value is not None:
                raise ValueError(reason)

        return Annotated[None, BeforeValidator(refuse)], Field(None, description=f"{description}; {reason}")
    size: dict[str, Any] = {"min_length": num_classes, "max_length": num_classes}
    fields: Any = {
        "rows": (Annotated[list[Annotated[list[Cost], Field(**size)]], Field(**size)], _again(Costs, "rows")),
        "classes": (Annotated[list[str], Field(**size)] | None, _again(Costs, "classes")),
    }
    return create_model("Costs", __base__=Costs, **fields) | None, Field(None, description=description)


def _again(model: type[BaseModel], name: str) -> Any:
    """The default and the description of a field, for another type."""
    field = model.model_fields[name]
    return Field(field.default, description=field.description)


def predict_request(settings: Settings, num_classes: int, has_columns: bool = False) -> type[PredictRequest]:
    """The request with the limits of these settings, the registered decoders, and at most all classes in `top_k`."""
    text = _text_type(settings, has_columns)
    texts = Annotated[list[text], Field(min_length=1, max_length=settings.max_texts)]  # type: ignore[valid-type]
    top_k = Field(
        min(_DEFAULT_TOP_K, num_classes),
        ge=0,
        le=min(_MAX_TOP_K, num_classes),
        description="number of most probable classes to return as alternatives",
    )
    fields = {"text": (text | None, None), "texts": (texts | None, None), "top_k": (int, top_k)}
    return _with_decoders(PredictRequest, **fields, costs=_costs_field(settings, num_classes))


def explain_request(settings: Settings, num_classes: int, has_columns: bool = False) -> type[ExplainRequest]:
    """The request with the limits of these settings and the registered decoders."""
    costs = _costs_field(settings, num_classes)
    return _with_decoders(ExplainRequest, text=(_text_type(settings, has_columns), ...), costs=costs)


def _with_decoders(base: type[M], **fields: Any) -> type[M]:
    decoders = decoder_options()
    summaries = "; ".join(f"{name}: {DECODERS.summary(name)}" for name in decoders)
    fields["decoder"] = (Literal[*decoders] | None, Field(None, description=summaries))
    names = tuple(dict.fromkeys(name for options in decoders.values() for name in options))
    for name in names:
        accepting = {decoder: options[name] for decoder, options in decoders.items() if name in options}
        kind: Any = next(iter(accepting.values())).annotation
        description = f"option of the decoder {' and '.join(accepting)}"
        fields[name] = (kind | None, Field(None, description=description))
    model = create_model(base.__name__, __base__=base, **fields)
    model.option_names = names
    return model


def request_schema(model: type[DecodingRequest]) -> dict[str, Any]:
    """The JSON schema of a request, with the rules about several fields that its validation enforces."""
    schema = model.model_json_schema()
    for definition in schema.pop("$defs", {}).values():  # of costs, the only nested object
        schema["properties"]["costs"]["anyOf"][0] = definition
    unset = {"type": "null"}
    options = dict.fromkeys(model.option_names, unset)
    sets = {name: unset for name in ("max_nodes", "groups") if name in model.model_fields}
    choices: list[dict[str, Any]] = [
        {
            "properties": {
                "coverage": unset,
                "decoder": {"enum": [name, None]},
                **({} if takes_costs(name) else {"costs": unset}),
                **sets,
                **{option: unset for option in options if option not in accepted},
            },
            "required": [option for option in accepted if accepted[option].default is REQUIRED],
        }
        for name, accepted in decoder_options().items()
    ]
    unrestricted = {"anyOf": [unset, {"type": "array", "maxItems": 0}]}
    no_decoder = {"decoder": unset, "costs": unset, "within": unrestricted, "without": unrestricted, **options}
    coverage = {"properties": {"coverage": {"type": "number"}, **no_decoder}, "required": ["coverage"]}
    rules: list[dict[str, Any]] = [{"anyOf": [*choices, coverage]}]
    of_risk = {"properties": {"metric": {"const": "risk"}}, "required": ["metric"]}
    rules.append({"anyOf": [{"properties": {"costs": unset}}, of_risk]})
    if "texts" in model.model_fields:
        kinds = {"text": {"type": ["string", "object"]}, "texts": {"type": "array"}}
        rules.append({"oneOf": [{"properties": {name: kinds[name]}, "required": [name]} for name in kinds]})
    return {**schema, "allOf": rules}


def _text_type(settings: Settings, has_columns: bool) -> Any:
    text = Annotated[str, Field(max_length=settings.max_characters)]
    return text | Columns if has_columns else text


class TaxonomyQuery(BaseModel):
    """A part of the taxonomy: a page of the children of a node, or the nodes whose names contain some words."""

    model_config = ConfigDict(extra="forbid")

    node: int = Field(0, ge=0, description="return the children of this node; not with search")
    offset: int = Field(0, ge=0, description="number of results to skip")
    limit: int = Field(100, ge=1, le=500, description="maximum number of results")
    search: str | None = Field(None, min_length=1, max_length=200, description="words of a name; not with node")

    @model_validator(mode="after")
    def _check_search(self) -> Self:
        if self.search is not None and "node" in self.model_fields_set:
            raise ValueError("give node or search, not both")
        return self


class NamedNode(BaseModel):
    node: int
    name: str
    label: str


class Step(NamedNode):
    probability: Probability


class StepUncertainty(BaseModel):
    """How uncertain a model is that a text is at or below a node; entropies in nats."""

    std: float = Field(description="standard deviation of the probability over the draws of the network")
    total: float = Field(description="entropy of the answer")
    aleatoric: float = Field(description="the part that remains when the network is known")
    epistemic: float = Field(description="the rest, which more training data could remove")


class PathUncertainty(BaseModel):
    """The uncertainty of each node on a path, as long as the path."""

    std: list[float]
    total: list[float]
    aleatoric: list[float]
    epistemic: list[float]


class TopClass(BaseModel):
    label: str
    probability: Probability


class Alternative(TopClass):
    node: int
    path: list[str]


class Prediction(Alternative):
    """The row of `arbormax predict` (label, path, probabilities, top) with the numbers of the nodes."""

    probabilities: list[Probability] = Field(description="probability of each node on the path")
    top: list[TopClass] = Field(default=[], description="the top_k most probable classes; absent if top_k is 0")
    steps: list[Step] = Field(description="the nodes from below the root to the prediction")
    uncertainty: PathUncertainty | None = Field(
        default=None, description="uncertainty of each node on the path, of a model that was trained with it"
    )
    set: list[str] = Field(
        default=[], description="labels of the nodes that contain the truth with the coverage; absent unless asked for"
    )
    reason: str | None = Field(description="why the prediction stops above the classes; null for a class")
    alternatives: list[Alternative] = Field(description="the top_k most probable classes, most probable first")


class PredictResponse(BaseModel):
    """One prediction per text, in the order of the request."""

    predictions: list[Prediction]


class ConditionalStep(NamedNode):
    probability: float
    conditional: float = Field(description="probability given the parent")


class ExplainedNode(ConditionalStep):
    parent: int | None
    depth: int
    on_path: bool
    classes: int
    children: int
    hidden: int = Field(description="number of children that are not listed")
    hidden_probability: float


class Token(BaseModel):
    text: str
    start: int
    end: int


class Part(Token):
    """A word, or an n-gram of words, and its contribution to a step."""

    value: float


class ExplainedStep(ConditionalStep):
    words: list[float] | None = Field(
        default=None,
        description="contribution of each token to the logarithm of `conditional`; positive values support the step",
    )
    parts: list[Part] = Field(
        default=[], description="words and n-grams of words whose own contribution is not negligible, the largest first"
    )
    uncertainty: StepUncertainty | None = Field(
        default=None, description="of a model that was trained with uncertainty; absent otherwise"
    )


class ExplainResponse(Alternative):
    """Why a text got its prediction: the relevant part of the tree, parents first, and the words at each step."""

    probability: float
    nodes: list[ExplainedNode]
    steps: list[ExplainedStep] = Field(description="the nodes from below the root to the most probable class")
    stopped_at: int = Field(description="number of steps to the prediction")
    reason: str | None = Field(description="why the prediction stops above the classes; null for a class")
    tokens: list[Token]
    words_method: str | None


class TreeNode(NamedNode):
    classes: int = Field(description="number of classes at or below the node")
    children: int


class TaxonomyPage(BaseModel):
    """A node, its ancestors, and a page of its children."""

    name: str
    classes: int
    nodes: int
    depth: int
    fingerprint: str
    node: TreeNode
    ancestors: list[TreeNode] = Field(description="from the root down")
    children: list[TreeNode]
    total: int = Field(description="number of all children")
    offset: int


class Match(TreeNode):
    path: list[str]


class TaxonomyMatches(BaseModel):
    """The nodes whose names contain the words: equal names first, then prefixes, starts of words, other positions."""

    matches: list[Match]
    total: int


class DecoderInfo(BaseModel):
    name: str
    summary: str
    options: dict[str, Any] = Field(description="options with their default values; null: required")
    choices: dict[str, dict[str, list[str]]] = Field(
        description="the values of options that are names, and the further options that each value takes"
    )
    costs: bool = Field(description="whether the decoder takes costs")


class CoverageInfo(BaseModel):
    """What a model that was calibrated with coverage guarantees."""

    items: int = Field(description="number of held-out texts that the guarantee rests on")
    target: float | None = Field(description="the coverage that was asked for")
    guaranteed: bool = Field(
        description="false: an estimate from texts that the model was trained on later; requests cannot ask for it"
    )
    thresholds: list[tuple[float, float]] = Field(description="coverages, and the option `tau` of `climb` for each")
    most_in_branches: float | None = Field(
        description="the highest coverage of sets within each branch below the root; null: none"
    )


class Limits(BaseModel):
    max_texts: int
    max_characters: int
    max_body_bytes: int
    max_cost_classes: int


class ColumnsInfo(BaseModel):
    """The columns of a model that was trained on several: those of texts, and those of categories."""

    text: list[str]
    also: list[str]


class ModelResponse(BaseModel):
    """The model, the decoders, and the limits of the service."""

    name: str
    encoder: str
    head: str
    classes: int
    depth: int
    arbormax: str
    decoders: list[DecoderInfo]
    limits: Limits
    coverage: CoverageInfo | None = Field(default=None, description="null without guaranteed coverage")
    columns: ColumnsInfo | None = Field(default=None, description="null for a model of single texts")
    examples: list[str]


def model_response() -> type[ModelResponse]:
    """The response with the registered encoders and heads."""
    fields: dict[str, Any] = {"encoder": (Literal[*ENCODERS], ...), "head": (Literal[*HEADS], ...)}
    return create_model("ModelResponse", __base__=ModelResponse, **fields)


class ProblemResponse(BaseModel):
    """An error in the format of RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[dict[str, str]] = Field(default=[], description="location (a JSON pointer) and detail of each error")
