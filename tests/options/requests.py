"""Prints the requests that the vendors' own libraries send for each option, one JSON object a line.

The requests go to a server on the loopback device, which records and refuses them.
"""

import base64
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anthropic
import ollama
import openai
from google import genai
from google.genai import types
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

RECEIVED = []


class Recorder(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        RECEIVED.append((self.path.split("?")[0], self.headers.get("anthropic-beta"), json.loads(body)))
        answer = b'{"error":{"message":"recorded","type":"invalid_request_error"}}'
        self.send_response(400)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"

claude = anthropic.Anthropic(api_key="k", base_url=url, max_retries=0)
gpt = openai.OpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0)
gemini = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url))
local_models = ollama.Client(host=url)


def record(name, wire, send):
    RECEIVED.clear()
    try:
        send()
    except (anthropic.APIError, openai.APIError, genai.errors.APIError, ollama.ResponseError):
        pass
    (path, beta, body) = RECEIVED[-1]
    print(json.dumps({"option": name, "wire": wire, "path": path, "beta": beta, "body": body}))


HELLO = [{"role": "user", "content": "hello"}]
SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
    "additionalProperties": False,
}
LOOK_UP = {"name": "look_up", "description": "Looks up a word"}
CLAUDE_TOOL = {**LOOK_UP, "input_schema": SCHEMA}
CHAT_TOOL = {"type": "function", "function": {**LOOK_UP, "parameters": SCHEMA}}
RESPONSES_TOOL = {"type": "function", **LOOK_UP, "parameters": SCHEMA, "strict": False}
GEMINI_TOOL = types.Tool(
    function_declarations=[types.FunctionDeclaration(**LOOK_UP, parameters_json_schema=SCHEMA)]
)
PDF = base64.b64encode(b"%PDF").decode()
PNG = base64.b64encode(b"\x89PNG").decode()


def messages(name, messages=HELLO, **options):
    send = claude.messages.create
    record(name, "messages", lambda: send(model="m", max_tokens=8192, messages=messages, **options))


def chat(name, messages=HELLO, model="m", **options):
    send = gpt.chat.completions.create
    record(name, "chat", lambda: send(model=model, messages=messages, **options))


def responses(name, content="hello", model="m", more=(), **options):
    message = {"type": "message", "role": "user", "content": content}
    send = gpt.responses.create
    record(name, "responses", lambda: send(model=model, input=[message, *more], **options))


def generate(name, contents="hello", **options):
    config = types.GenerateContentConfig(**options)
    send = gemini.models.generate_content
    record(name, "gemini", lambda: send(model="gemini-3-pro", contents=contents, config=config))


def ask_ollama(name, messages=HELLO, **options):
    record(name, "ollama", lambda: local_models.chat(model="m", messages=messages, **options))


combined = types.ToolConfig(include_server_side_tool_invocations=True)

messages("strict_tool", tools=[{**CLAUDE_TOOL, "strict": True}])
chat("strict_tool", tools=[{"type": "function", "function": {**CHAT_TOOL["function"], "strict": True}}])
responses("strict_tool", tools=[{**RESPONSES_TOOL, "strict": True}])

near = {"type": "approximate", "city": "Oslo", "country": "NO"}
search = {"type": "web_search_20250305", "name": "web_search", "user_location": near}
messages("web_search", tools=[CLAUDE_TOOL, search])
approximate = {"city": "Oslo", "country": "NO"}
chat(
    "web_search_alone",
    model="gpt-5-search-api",
    web_search_options={"user_location": {"type": "approximate", "approximate": approximate}},
)
responses("web_search", tools=[RESPONSES_TOOL, {"type": "web_search", "user_location": near}])
generate(
    "any_web_search",
    tools=[GEMINI_TOOL, types.Tool(google_search=types.GoogleSearch())],
    tool_config=combined,
)
limits = {"allowed_domains": ["docs.rs"], "max_uses": 3, "max_content_tokens": 9}
fetch = {"type": "web_fetch_20250910", "name": "web_fetch", **limits}
messages("web_fetch", tools=[CLAUDE_TOOL, fetch])
generate(
    "any_web_fetch",
    tools=[GEMINI_TOOL, types.Tool(url_context=types.UrlContext())],
    tool_config=combined,
)
execution = {"type": "code_execution_20250825", "name": "code_execution"}
messages("code_execution", tools=[CLAUDE_TOOL, execution])
interpreter = {"type": "code_interpreter", "container": {"type": "auto"}}
responses("code_execution", tools=[RESPONSES_TOOL, interpreter])
generate("code_execution_alone", tools=[types.Tool(code_execution=types.ToolCodeExecution())])
store = {"type": "file_search", "vector_store_ids": ["s"], "max_num_results": 5}
responses("file_search", tools=[RESPONSES_TOOL, store])
store = types.FileSearch(file_search_store_names=["s"], top_k=5)
generate("file_search", tools=[GEMINI_TOOL, types.Tool(file_search=store)], tool_config=combined)

wiki = {"type": "url", "name": "wiki", "url": "https://mcp.example", "authorization_token": "t"}
toolset = {
    "type": "mcp_toolset",
    "mcp_server_name": "wiki",
    "default_config": {"enabled": False},
    "configs": {"find": {"enabled": True}},
}
record(
    "mcp_server",
    "messages",
    lambda: claude.beta.messages.create(
        model="m",
        max_tokens=8192,
        messages=HELLO,
        mcp_servers=[wiki],
        tools=[CLAUDE_TOOL, toolset],
        betas=["mcp-client-2025-11-20"],
    ),
)
wiki = {
    "type": "mcp",
    "server_label": "wiki",
    "server_url": "https://mcp.example",
    "authorization": "t",
    "allowed_tools": ["find"],
    "require_approval": "never",
}
responses("mcp_server", tools=[RESPONSES_TOOL, wiki])
del wiki["allowed_tools"]
wiki["require_approval"] = "always"
responses("mcp_approval", tools=[RESPONSES_TOOL, wiki])
transport = types.StreamableHttpTransport(
    url="https://mcp.example", headers={"Authorization": "Bearer t"}
)
wiki = types.McpServer(name="wiki", streamable_http_transport=transport)
generate("any_mcp_server", tools=[GEMINI_TOOL, types.Tool(mcp_servers=[wiki])], tool_config=combined)

messages("service_tier", service_tier="standard_only")
chat("service_tier", service_tier="default")
responses("service_tier", service_tier="default")
generate("service_tier", service_tier="standard")
chat("verbosity", verbosity="low")
responses("verbosity", text={"verbosity": "low"})
chat("prompt_cache_key", prompt_cache_key="k")
responses("prompt_cache_key", prompt_cache_key="k")
chat("prompt_cache_retention", prompt_cache_retention="24h")
responses("prompt_cache_retention", prompt_cache_retention="24h")
responses("long_cache", model="gpt-5.6", prompt_cache_options={"ttl": "12h"})
chat("effort_max", model="gpt-5.6", reasoning_effort="max")
responses("effort_max", model="gpt-5.6", reasoning={"effort": "max"})

local = {"type": "shell", "environment": {"type": "local"}}
responses("client_tools", tools=[local, {"type": "apply_patch"}, {"type": "computer"}])
exited = {"type": "exit", "exit_code": 0}
results: list[ResponseInputItemParam] = [
    {"type": "shell_call", "call_id": "call_1", "action": {"commands": ["pwd"]}},
    {
        "type": "shell_call_output",
        "call_id": "call_1",
        "output": [{"stdout": "/home", "stderr": "", "outcome": exited}],
    },
    {
        "type": "apply_patch_call",
        "call_id": "call_2",
        "operation": {"type": "delete_file", "path": "a.md"},
        "status": "completed",
    },
    {
        "type": "apply_patch_call_output",
        "call_id": "call_2",
        "status": "completed",
        "output": "Deleted.",
    },
    {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": "call_3",
        "actions": [{"type": "screenshot"}],
        "pending_safety_checks": [],
        "status": "completed",
    },
    {
        "type": "computer_call_output",
        "call_id": "call_3",
        "output": {
            "type": "computer_screenshot",
            "image_url": f"data:image/png;base64,{PNG}",
        },
    },
    {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "server_label": "wiki",
        "name": "find",
        "arguments": "{}",
    },
    {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
]
TypeAdapter(list[ResponseInputItemParam]).validate_python(results, strict=True)
responses("client_tool_results", model="gpt-5.6", more=results)

thinking = {"type": "adaptive", "display": "omitted"}
messages("reasoning_summary_off", thinking=thinking, output_config={"effort": "high"})
responses("reasoning_summary", reasoning={"effort": "high", "summary": "detailed"})
thinking = types.ThinkingConfig(thinking_level="high", include_thoughts=False)
generate("reasoning_summary_off", thinking_config=thinking)
chat("logprobs", logprobs=True, top_logprobs=2)
responses("logprobs", top_logprobs=2, include=["message.output_text.logprobs"])
generate("logprobs", response_logprobs=True, logprobs=2)

function = {"type": "function", "function": {"name": "look_up"}}
allowed = {"mode": "auto", "tools": [function]}
choice = {"type": "allowed_tools", "allowed_tools": allowed}
chat("allowed_tools", tools=[CHAT_TOOL], tool_choice=choice)
function = {"type": "function", "name": "look_up"}
choice = {"type": "allowed_tools", "mode": "auto", "tools": [function]}
responses("allowed_tools", tools=[RESPONSES_TOOL], tool_choice=choice)
calling = types.FunctionCallingConfig(mode="VALIDATED", allowed_function_names=["look_up"])
generate(
    "allowed_tools",
    tools=[GEMINI_TOOL],
    tool_config=types.ToolConfig(function_calling_config=calling),
)


def user(part):
    return [{"role": "user", "content": [part]}]


source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
messages("citations", user({"type": "document", "source": source, "citations": {"enabled": True}}))
messages("file_by_id", user({"type": "document", "source": {"type": "file", "file_id": "file_1"}}))
chat("file_by_id", user({"type": "file", "file": {"file_id": "file-1"}}))
responses("file_by_id", [{"type": "input_file", "file_id": "file-1"}])
image = {"url": f"data:image/png;base64,{PNG}", "detail": "low"}
chat("image_detail", user({"type": "image_url", "image_url": image}))
image = {"type": "input_image", "image_url": image["url"], "detail": "low"}
responses("image_detail", [image])
part = types.Part(
    inline_data=types.Blob(mime_type="image/png", data=base64.b64decode(PNG)),
    media_resolution=types.PartMediaResolution(level="MEDIA_RESOLUTION_LOW"),
)
generate("image_detail", [types.Content(role="user", parts=[part])])

shown = {"type": "adaptive", "display": "summarized"}
for effort in ("low", "medium", "high"):
    name = f"effort_{effort}"
    messages(name, thinking=shown, output_config={"effort": effort})
    chat(name, model="gpt-5.6", reasoning_effort=effort)
    responses(name, model="gpt-5.6", reasoning={"effort": effort})
    thinking = types.ThinkingConfig(thinking_level=effort, include_thoughts=True)
    generate(name, thinking_config=thinking)
messages("reasoning_off", thinking={"type": "disabled"})
chat("reasoning_off", model="gpt-5.6", reasoning_effort="none")
responses("reasoning_off", model="gpt-5.6", reasoning={"effort": "none"})
generate("reasoning_off", thinking_config=types.ThinkingConfig(thinking_budget=0))
ask_ollama("reasoning_off", think=False)
ask_ollama("effort_high", think="high")
messages("reasoning_budget", thinking={"type": "enabled", "budget_tokens": 2000})
thinking = types.ThinkingConfig(thinking_budget=2000, include_thoughts=True)
generate("reasoning_budget", thinking_config=thinking)

nucleus = {"temperature": 0.5, "top_p": 0.75}
penalties = {"frequency_penalty": 0.5, "presence_penalty": 0.25}
# Anthropic's library has no other option for sampling.
messages("sampling", stop_sequences=["END"])
chat("sampling", **nucleus, **penalties, seed=7, stop=["END"], max_completion_tokens=77)
responses("sampling", **nucleus, max_output_tokens=77)
generate("sampling", **nucleus, **penalties, top_k=5, seed=7, stop_sequences=["END"], max_output_tokens=77)
sampling = {**nucleus, **penalties, "top_k": 5, "seed": 7, "stop": ["END"], "num_predict": 77}
ask_ollama("sampling", options=sampling)

none, required = {"type": "none"}, {"type": "any"}
one = {"type": "tool", "name": "look_up"}
single = {"type": "auto", "disable_parallel_tool_use": True}
for name, choice in (("none", none), ("required", required), ("one", one)):
    messages(f"tool_choice_{name}", tools=[CLAUDE_TOOL], tool_choice=choice)
one = {"type": "function", "function": {"name": "look_up"}}
for name, choice in (("none", "none"), ("required", "required"), ("one", one)):
    chat(f"tool_choice_{name}", tools=[CHAT_TOOL], tool_choice=choice)
one = {"type": "function", "name": "look_up"}
for name, choice in (("none", "none"), ("required", "required"), ("one", one)):
    responses(f"tool_choice_{name}", tools=[RESPONSES_TOOL], tool_choice=choice)
none, required = types.FunctionCallingConfig(mode="NONE"), types.FunctionCallingConfig(mode="ANY")
one = types.FunctionCallingConfig(mode="ANY", allowed_function_names=["look_up"])
for name, choice in (("none", none), ("required", required), ("one", one)):
    config = types.ToolConfig(function_calling_config=choice)
    generate(f"tool_choice_{name}", tools=[GEMINI_TOOL], tool_config=config)
messages("single_calls", tools=[CLAUDE_TOOL], tool_choice=single)
chat("single_calls", tools=[CHAT_TOOL], parallel_tool_calls=False)
responses("single_calls", tools=[RESPONSES_TOOL], parallel_tool_calls=False)
ask_ollama("tools", tools=[CHAT_TOOL])

messages("user", metadata={"user_id": "u-1"})
chat("user", safety_identifier="u-1")
responses("user", safety_identifier="u-1")
chat("metadata", metadata={"run": "1"})
responses("metadata", metadata={"run": "1"})
chat("json", response_format={"type": "json_object"})
responses("json", text={"format": {"type": "json_object"}})
generate("json", response_mime_type="application/json")
ask_ollama("json", format="json")
named = {"name": "answer", "schema": SCHEMA, "strict": True}
messages("schema", output_config={"format": {"type": "json_schema", "schema": SCHEMA}})
chat("schema", response_format={"type": "json_schema", "json_schema": named})
responses("schema", text={"format": {"type": "json_schema", **named}})
generate("schema", response_mime_type="application/json", response_json_schema=SCHEMA)
ask_ollama("schema", format=SCHEMA)
ask_ollama("logprobs", logprobs=True, top_logprobs=2)

for name, mark in (("off", None), ("short", {"type": "ephemeral"}), ("long", {"type": "ephemeral", "ttl": "1h"})):
    part = {"type": "text", "text": "hello"}
    marked = part if mark is None else {**part, "cache_control": mark}
    messages(f"marks_{name}", [{"role": "user", "content": [marked]}])
for tier in ("flex", "priority"):
    chat(f"tier_{tier}", service_tier=tier)
    responses(f"tier_{tier}", service_tier=tier)
    generate(f"tier_{tier}", service_tier=tier)
messages("tier_auto", service_tier="auto")
chat("tier_auto", service_tier="auto")
responses("tier_auto", service_tier="auto")

for detail, level in (("high", "MEDIA_RESOLUTION_HIGH"), ("original", "MEDIA_RESOLUTION_ULTRA_HIGH")):
    image = {"url": f"data:image/png;base64,{PNG}", "detail": detail}
    chat(f"detail_{detail}", user({"type": "image_url", "image_url": image}))
    responses(f"detail_{detail}", [{"type": "input_image", "image_url": image["url"], "detail": detail}])
    part = types.Part(
        inline_data=types.Blob(mime_type="image/png", data=base64.b64decode(PNG)),
        media_resolution=types.PartMediaResolution(level=level),
    )
    generate(f"detail_{detail}", [types.Content(role="user", parts=[part])])
messages("image_by_id", user({"type": "image", "source": {"type": "file", "file_id": "file_1"}}))
responses("image_by_id", [{"type": "input_image", "file_id": "file-1", "detail": "auto"}])
uri = "https://generativelanguage.googleapis.com/v1beta/files/1"
part = types.Part(file_data=types.FileData(file_uri=uri, mime_type="image/png"))
generate("image_by_id", [types.Content(role="user", parts=[part])])
ask_ollama("image", [{"role": "user", "content": "look", "images": [base64.b64decode(PNG)]}])

count = claude.messages.count_tokens
record("token_count", "messages", lambda: count(model="m", messages=HELLO, tools=[CLAUDE_TOOL]))
message = {"type": "message", "role": "user", "content": "hello"}
count = gpt.responses.input_tokens.count
record("token_count", "responses", lambda: count(model="m", input=[message], tools=[RESPONSES_TOOL]))
count = gemini.models.count_tokens
record("token_count", "gemini", lambda: count(model="gemini-3-pro", contents="hello"))
sys.stdout.flush()
