from __future__ import annotations

from typing import Any

import pytest
from langchain.chat_models import init_chat_model
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_openai import ChatOpenAI

from langgraph_convcoa import build_graph
from langgraph_convcoa.errors import ModelError
from langgraph_convcoa.reasoning.models import call_error, chat_models, load_chat_model
from tests.fakes import KeywordRetriever


def test_a_name_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    model = load_chat_model("openai:gpt-4.1-mini")
    assert isinstance(model, ChatOpenAI)
    assert (model.model_name, model.temperature) == ("gpt-4.1-mini", 0)


def test_a_base_url_needs_no_key() -> None:
    model = load_chat_model("qwen3:8b", base_url="http://127.0.0.1:9/v1")
    assert isinstance(model, ChatOpenAI)
    assert model.model_name == "qwen3:8b"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("openai:gpt-4.1-mini", {}, "set OPENAI_API_KEY"), ("gpt-4.1-mini", {}, "set OPENAI_API_KEY"),
        ("nonsense", {}, "unknown model"), ("no-such-provider:x", {}, "unknown model"),
        ("mistralai:x", {}, "package that is not installed"), ("", {}, "empty"), ("openai:x", {"base_url": "ftp://x"}, "http"),
        ("openai:x", {"load_in_8bit": True}, "local models"),
        ("huggingface:/no/such/folder", {}, "cannot load the local model"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_says_why_in_one_line(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load_chat_model(name, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_a_failed_call_keeps_its_first_meaning() -> None:
    error = ModelError("x")
    assert call_error(error, FakeListChatModel(responses=[])) is error


def test_the_message_of_a_failure_is_shown_without_secrets() -> None:
    model = ChatOpenAI(model="x", api_key="swordfish-9")
    error = call_error(RuntimeError("quota exceeded for swordfish-9\nsee https://me:pw@example.org"), model)
    assert str(error) == "the model 'x' failed: RuntimeError: quota exceeded for [hidden]"
    assert str(call_error(RuntimeError(), model)) == "the model 'x' failed: RuntimeError"


def test_a_run_that_chooses_no_model_is_told_how() -> None:
    error = call_error(TypeError("missing 'model'"), init_chat_model())
    assert "name it in the run's config" in str(error)


def test_a_model_is_taken_as_it_is_also_in_wrappers() -> None:
    bare = FakeListChatModel(responses=["a"])
    model = bare.with_retry()
    assert (load_chat_model(bare), load_chat_model(model)) == (bare, model)
    with pytest.raises(ModelError, match="a chain"):
        load_chat_model(model | StrOutputParser())


def test_the_error_of_a_wrapped_model_names_the_one_inside() -> None:
    first, second = ChatOpenAI(model="x", api_key="k", max_retries=0), FakeListChatModel(responses=[])
    wrapped = first.bind(stop=["."]).with_fallbacks([second])
    error = call_error(TimeoutError(), wrapped)
    assert str(error) == (
        "the model 'x' did not answer in time: ask again, or raise the model's timeout; its fallbacks failed too"
    )
    only = first.with_fallbacks([second], exceptions_to_handle=(ConnectionError,))
    assert str(call_error(TimeoutError(), only)).endswith("the model's timeout")
    chosen = init_chat_model("openai:x", configurable_fields=("model",), api_key="k")
    assert "the model 'y'" in str(call_error(TimeoutError(), chosen, {"configurable": {"model": "openai:y"}}))
    assert str(call_error(ModelError("no such model"), init_chat_model())) == "no such model"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a random two-layer Qwen2 whose tokens are bytes, with a chat template: real loading, no download."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

    folder = tmp_path_factory.mktemp("qwen")
    vocabulary = {token: n for n, token in enumerate(["<|endoftext|>", *sorted(ByteLevel.alphabet())])}
    tokenizer = Qwen2Tokenizer(vocab=vocabulary, merges=[])
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}assistant "
    tokenizer.save_pretrained(folder)
    heads = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = Qwen2Config(vocab_size=len(vocabulary), hidden_size=16, intermediate_size=16, eos_token_id=0, **heads)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return f"huggingface:{folder}"


@pytest.mark.slow
def test_a_local_transformers_model_answers(local: str) -> None:
    model = load_chat_model(local, max_new_tokens=4)
    reply = model.invoke([HumanMessage("hopfield network")])
    assert isinstance(reply.text, str)
    assert "hopfield network" not in reply.text, "only what was generated, not the prompt"


@pytest.mark.slow
def test_a_local_model_in_8_bits(local: str) -> None:
    linear = pytest.importorskip("bitsandbytes", reason="the int8 extra is not installed").nn.Linear8bitLt
    model = load_chat_model(local, load_in_8bit=True, max_new_tokens=4)
    layers = model.llm.pipeline.model.modules()  # type: ignore[attr-defined]
    assert any(isinstance(layer, linear) for layer in layers)
    assert isinstance(model.invoke([HumanMessage("hopfield network")]).text, str)


@pytest.mark.slow
def test_a_local_model_that_writes_nonsense_stops_no_turn(local: str) -> None:
    model = load_chat_model(local, max_new_tokens=8)
    out = build_graph(model=model, retriever=KeywordRetriever()).compile().invoke({"question": "Who introduced sparsemax?"})
    assert out["chain"][0]["answer"] == "Sparsemax was introduced by Martins and Astudillo in 2016."
    assert out["answer"] == "“Sparsemax was introduced by Martins and Astudillo in 2016” [1].", "and not what the model wrote"
    assert out["usage"]["llm_calls"] == 3, "plan, repair, correct"


@pytest.mark.slow
def test_graphs_share_a_local_model_that_their_runs_name(local: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from langchain_huggingface import HuggingFacePipeline

    load, loaded = HuggingFacePipeline.from_model_id, []
    monkeypatch.setattr(HuggingFacePipeline, "from_model_id", lambda **given: loaded.append(given) or load(**given))
    graphs = [build_graph(retriever=KeywordRetriever()).compile() for _ in range(2)]
    for graph in graphs:
        graph.invoke({"question": "Who introduced sparsemax?"}, context={"model": local, "max_corrections": 0})
    assert len(loaded) == 1


def named(name: str, **settings: Any) -> ChatOpenAI:
    return ChatOpenAI(model=name, base_url="http://127.0.0.1:9/v1", api_key="x", **settings)


def names(model: Any, /, **chosen: Any) -> list[str]:
    config: Any = {"configurable": chosen} if chosen else None
    return [found.model_name for found in chat_models(model, config)]  # type: ignore[attr-defined]


def configurable(**settings: Any) -> Any:
    return init_chat_model("openai:a", configurable_fields=("model",), api_key="x", **settings)


def test_the_models_inside_in_the_order_they_are_asked() -> None:
    a, b, c = named("a"), named("b"), named("c")
    wrapped = a.bind(stop=["."]).with_config(tags=["t"]).with_fallbacks([b.with_retry(), c.with_types()])
    assert names(wrapped) == ["a", "b", "c"]
    assert names(wrapped.with_retry()) == ["a", "b", "c"]


def test_a_run_chooses_the_model() -> None:
    fields = named("a").configurable_fields(model_name=ConfigurableField("model"))
    either = named("a").configurable_alternatives(ConfigurableField("who"), b=named("b"), c=lambda: named("c"))
    assert (names(fields), names(fields, model="d")) == (["a"], ["d"])
    assert (names(either), names(either, who="b"), names(either, who="c")) == (["a"], ["b"], ["c"])
    assert (names(configurable()), names(configurable(), model="openai:d")) == (["a"], ["d"])
    assert names(configurable().with_fallbacks([named("b")]), model="openai:d") == ["d", "b"]


def test_a_model_that_takes_any_field_is_not_given_the_graphs_own() -> None:
    model = init_chat_model("openai:a", configurable_fields="any", api_key="x")
    [found] = chat_models(
        model, {"configurable": {"model": "openai:d", "thread_id": "1", "checkpoint_ns": "", "__pregel_x": 1}}
    )
    assert isinstance(found, ChatOpenAI)
    assert (found.model_name, found.model_kwargs) == ("d", {})


def test_a_configurable_model_without_a_default_is_not_known_before_it_is_chosen() -> None:
    assert chat_models(init_chat_model()) == []


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (ChatPromptTemplate.from_template("{q}") | named("a"), "a chain .* without prompt and parser"),
        (named("a") | StrOutputParser(), "a chain .* without prompt and parser"),
        (named("a").with_structured_output({"title": "x", "type": "object", "properties": {}}, include_raw=True), "a chain"),
        (named("a").with_fallbacks([named("b") | StrOutputParser()]), "a chain"),
        (RunnableLambda(lambda _: "x"), "not RunnableLambda"),
        (named("a").with_fallbacks([named("b")], exception_key="error"), "exception_key"),
        (3, "not int"),
    ],
)
def test_what_is_no_model_is_refused(other: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        chat_models(other)
