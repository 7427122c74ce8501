"""Runs the vendors' clients for Python against servers of agents.

Arguments: the addresses of the servers. Prints one line of JSON for each run: the number of the server, the client, the case,
and the answer, or the error with which the client has failed.
"""

import json
import sys

import anthropic
import ollama
import openai
from google import genai
from google.genai import types
from pydantic import BaseModel

DOUBLE = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


class City(BaseModel):
    name: str


def openai_cases(url):
    client = openai.OpenAI(base_url=url + "/v1", api_key="key", max_retries=0)
    ask = [{"role": "user", "content": "How many?"}]

    def chat(model):
        answer = client.chat.completions.create(model=model, messages=ask)
        assert answer.usage.total_tokens > 0, answer
        return [answer.choices[0].message.content, answer.choices[0].finish_reason]

    def chat_streamed(model):
        chunks = client.chat.completions.create(
            model=model, messages=ask, stream=True, stream_options={"include_usage": True}
        )
        text, finish, usage = "", None, None
        for chunk in chunks:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
        assert usage.total_tokens > 0, usage
        return [text, finish]

    def chat_helper(model):
        with client.chat.completions.stream(model=model, messages=ask) as stream:
            for _ in stream:
                pass
            answer = stream.get_final_completion()
        return [answer.choices[0].message.content, answer.choices[0].finish_reason]

    def chat_tools(model, streamed=False):
        function = {"name": "double", "description": "Doubles", "parameters": DOUBLE}
        tools = [{"type": "function", "function": function}]
        messages = list(ask)

        def create():
            if not streamed:
                return client.chat.completions.create(model=model, messages=messages, tools=tools)
            strict = [{"type": "function", "function": function | {"strict": True}}]
            with client.chat.completions.stream(model=model, messages=messages, tools=strict) as stream:
                return stream.get_final_completion()

        answer = create().choices[0]
        assert answer.finish_reason == "tool_calls", answer
        message = answer.message
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": call.function.arguments}}
            for call in message.tool_calls
        ]
        messages.append({"role": "assistant", "content": message.content, "tool_calls": calls})
        for call in message.tool_calls:
            doubled = json.loads(call.function.arguments)["n"] * 2
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(doubled)})
        answer = create().choices[0]
        return [answer.message.content, answer.finish_reason]

    def chat_parsed(model):
        answer = client.chat.completions.parse(model=model, messages=ask, response_format=City)
        return [answer.choices[0].message.parsed.name, answer.choices[0].finish_reason]

    def responses(model):
        answer = client.responses.create(model=model, input="How many?")
        assert answer.usage.total_tokens > 0, answer
        return [answer.output_text, answer.status]

    def responses_helper(model):
        with client.responses.stream(model=model, input="How many?") as stream:
            numbers = [event.sequence_number for event in stream]
            answer = stream.get_final_response()
        assert numbers == sorted(set(numbers)), numbers
        return [answer.output_text, answer.status]

    def responses_tools(model, streamed=False):
        tools = [{"type": "function", "name": "double", "description": "Doubles", "parameters": DOUBLE, "strict": True}]

        def create(**arguments):
            if not streamed:
                return client.responses.create(model=model, tools=tools, **arguments)
            with client.responses.stream(model=model, tools=tools, **arguments) as stream:
                return stream.get_final_response()

        answer = create(input="How many?")
        calls = [item for item in answer.output if item.type == "function_call"]
        results = [
            {"type": "function_call_output", "call_id": call.call_id, "output": str(json.loads(call.arguments)["n"] * 2)}
            for call in calls
        ]
        answer = create(input=results, previous_response_id=answer.id)
        return [answer.output_text, answer.status]

    def responses_parsed(model):
        answer = client.responses.parse(model=model, input="Where?", text_format=City)
        return [answer.output_parsed.name, answer.status]

    def models(_):
        return [sorted(model.id for model in client.models.list()), "listed"]

    def unknown(_):
        try:
            client.chat.completions.create(model="nobody", messages=ask)
        except openai.NotFoundError as error:
            return [error.param, "refused"]

    return "openai", [
        ("chat", "search", chat),
        ("chat streamed", "search", chat_streamed),
        ("chat stream helper", "search", chat_helper),
        ("chat tools", "double", chat_tools),
        ("chat tools streamed", "double", lambda model: chat_tools(model, True)),
        ("chat parsed", "city", chat_parsed),
        ("responses", "search", responses),
        ("responses stream helper", "search", responses_helper),
        ("responses tools", "double", responses_tools),
        ("responses tools streamed", "double", lambda model: responses_tools(model, True)),
        ("responses parsed", "city", responses_parsed),
        ("models", "", models),
        ("unknown model", "", unknown),
    ]


def anthropic_cases(url):
    client = anthropic.Anthropic(base_url=url, api_key="key", max_retries=0)
    ask = [{"role": "user", "content": "How many?"}]
    tools = [{"name": "double", "description": "Doubles", "input_schema": DOUBLE}]

    def text(answer):
        return "".join(block.text for block in answer.content if block.type == "text")

    def messages(model):
        answer = client.messages.create(model=model, max_tokens=100, messages=ask)
        assert answer.usage.output_tokens > 0, answer
        return [text(answer), answer.stop_reason]

    def stream(model):
        with client.messages.stream(model=model, max_tokens=100, messages=ask) as stream:
            streamed = "".join(stream.text_stream)
            answer = stream.get_final_message()
        assert streamed == text(answer), streamed
        return [streamed, answer.stop_reason]

    def run_tools(model, streamed=False):
        conversation = list(ask)

        def create():
            arguments = {"model": model, "max_tokens": 100, "messages": conversation, "tools": tools}
            if not streamed:
                return client.messages.create(**arguments)
            with client.messages.stream(**arguments) as stream:
                return stream.get_final_message()

        answer = create()
        assert answer.stop_reason == "tool_use", answer
        conversation.append({"role": "assistant", "content": [block.to_dict() for block in answer.content]})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": str(block.input["n"] * 2)}
            for block in answer.content
            if block.type == "tool_use"
        ]
        conversation.append({"role": "user", "content": results})
        answer = create()
        return [text(answer), answer.stop_reason]

    def count(model):
        counted = client.messages.count_tokens(model=model, messages=ask)
        return [counted.input_tokens > 0, "counted"]

    def models(_):
        return [sorted(model.id for model in client.models.list()), "listed"]

    def unknown(_):
        try:
            client.messages.create(model="nobody", max_tokens=1, messages=ask)
        except anthropic.NotFoundError as error:
            return [error.body["error"]["type"], "refused"]

    return "anthropic", [
        ("messages", "search", messages),
        ("messages stream helper", "search", stream),
        ("messages tools", "double", run_tools),
        ("messages tools streamed", "double", lambda model: run_tools(model, True)),
        ("count", "search", count),
        ("models", "", models),
        ("unknown model", "", unknown),
    ]


def gemini_cases(url):
    client = genai.Client(api_key="key", http_options=types.HttpOptions(base_url=url))

    def generate(model):
        answer = client.models.generate_content(model=model, contents="How many?")
        assert answer.usage_metadata.total_token_count > 0, answer
        return [answer.text, answer.candidates[0].finish_reason.value]

    def streamed(model):
        text, finish = "", None
        for chunk in client.models.generate_content_stream(model=model, contents="How many?"):
            text += chunk.text or ""
            finish = chunk.candidates[0].finish_reason or finish
        return [text, finish.value]

    def run_tools(model):
        def double(n: int) -> int:
            """Doubles a number."""
            return n * 2

        config = types.GenerateContentConfig(tools=[double])
        answer = client.models.generate_content(model=model, contents="How many?", config=config)
        return [answer.text, answer.candidates[0].finish_reason.value]

    def parsed(model):
        config = types.GenerateContentConfig(response_mime_type="application/json", response_schema=City)
        answer = client.models.generate_content(model=model, contents="Where?", config=config)
        return [answer.parsed.name, answer.candidates[0].finish_reason.value]

    def models(_):
        return [sorted(model.name for model in client.models.list()), "listed"]

    return "google-genai", [
        ("generate", "search", generate),
        ("generate streamed", "search", streamed),
        ("tools", "double", run_tools),
        ("parsed", "city", parsed),
        ("models", "", models),
    ]


def ollama_cases(url):
    client = ollama.Client(host=url)
    ask = [{"role": "user", "content": "How many?"}]

    def chat(model):
        answer = client.chat(model=model, messages=ask)
        return [answer.message.content, answer.done_reason]

    def streamed(model):
        text, reason = "", None
        for part in client.chat(model=model, messages=ask, stream=True):
            text += part.message.content or ""
            reason = part.done_reason or reason
        return [text, reason]

    def run_tools(model):
        messages = list(ask)
        function = {"name": "double", "description": "Doubles", "parameters": DOUBLE}
        tools = [{"type": "function", "function": function}]
        answer = client.chat(model=model, messages=messages, tools=tools)
        messages.append(answer.message)
        for call in answer.message.tool_calls:
            doubled = call.function.arguments["n"] * 2
            messages.append({"role": "tool", "tool_name": call.function.name, "content": str(doubled)})
        answer = client.chat(model=model, messages=messages, tools=tools)
        return [answer.message.content, answer.done_reason]

    def parsed(model):
        answer = client.chat(model=model, messages=ask, format=City.model_json_schema())
        return [City.model_validate_json(answer.message.content).name, answer.done_reason]

    def models(_):
        return [sorted(model.model for model in client.list().models), "listed"]

    return "ollama", [
        ("chat", "search", chat),
        ("chat streamed", "search", streamed),
        ("tools", "double", run_tools),
        ("parsed", "city", parsed),
        ("models", "", models),
    ]


for number, url in enumerate(sys.argv[1:]):
    for make in [openai_cases, anthropic_cases, gemini_cases, ollama_cases]:
        client, cases = make(url)
        for case, model, run in cases:
            line = {"server": number, "client": f"{client} (Python)", "case": case, "model": model}
            try:
                line["answer"] = run(model)
            except Exception as error:  # Each client has errors of its own.
                line["error"] = f"{type(error).__name__}: {error}"
            print(json.dumps(line), flush=True)
