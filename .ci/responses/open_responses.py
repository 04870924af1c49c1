"""The checks that Open Responses publishes for servers, with the types that are
generated from its specification: python3 open_responses.py URL KEY

Its own program is not in a registry. What each check asks and demands is what
https://www.openresponses.org/compliance lists; a prompt says in the words of the test's
vendor what the model is to answer.
"""

import json
import sys
import urllib.request

import openresponses_types as spec
import pydantic

url, key = sys.argv[1:3]

EVENTS = {
    name: pydantic.TypeAdapter(getattr(spec, kind))
    for name, kind in {
        "response.created": "ResponseCreatedStreamingEvent",
        "response.in_progress": "ResponseInProgressStreamingEvent",
        "response.completed": "ResponseCompletedStreamingEvent",
        "response.output_item.added": "ResponseOutputItemAddedStreamingEvent",
        "response.output_item.done": "ResponseOutputItemDoneStreamingEvent",
        "response.content_part.added": "ResponseContentPartAddedStreamingEvent",
        "response.content_part.done": "ResponseContentPartDoneStreamingEvent",
        "response.output_text.delta": "ResponseOutputTextDeltaStreamingEvent",
        "response.output_text.done": "ResponseOutputTextDoneStreamingEvent",
        "response.function_call_arguments.delta": "ResponseFunctionCallArgumentsDeltaStreamingEvent",
        "response.function_call_arguments.done": "ResponseFunctionCallArgumentsDoneStreamingEvent",
    }.items()
}
DOT = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Gets the weather of a place.",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}


def message(role, content):
    return {"type": "message", "role": role, "content": content}


CALL = message("user", 'call get_weather {"location":"San Francisco, CA"}')
CHECKS = {
    "basic": {"input": [message("user", "Greet me in three words.")]},
    "streaming": {"input": [message("user", "Count to five.")], "stream": True},
    "system prompt": {"input": [message("system", "Speak as a pirate does."), message("user", "Greet me.")]},
    "tool calling": {"input": [CALL], "tools": [WEATHER]},
    "tool calling, streaming": {"input": [CALL], "tools": [WEATHER], "stream": True},
    "image input": {
        "input": [message("user", [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": DOT}])]
    },
    "multi-turn": {
        "input": [message("user", "I am Alice."), message("assistant", "Good day, Alice."), message("user", "Who am I?")]
    },
}


def events(body):
    """The events of a stream, each checked by its own schema and its own name."""
    for block in body.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if lines.get("data") in (None, "[DONE]"):
            continue
        event = json.loads(lines["data"])
        assert lines["event"] == event["type"], lines
        EVENTS[event["type"]].validate_python(event)
        yield event


def check(request):
    ask = urllib.request.Request(
        url + "/responses",
        json.dumps({"model": "model", **request}).encode(),
        {"Authorization": "Bearer " + key, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(ask) as answer:
        body = answer.read().decode()
    if request.get("stream"):
        all_events = list(events(body))
        response = all_events[-1]["response"]
        if "tools" in request:
            kinds = [(e["type"], e.get("item", {}).get("type")) for e in all_events]
            for want in ("response.output_item.added", "response.output_item.done"):
                assert (want, "function_call") in kinds, kinds
            for want in ("response.function_call_arguments.delta", "response.function_call_arguments.done"):
                assert (want, None) in kinds, kinds
    else:
        response = json.loads(body)
    spec.ResponseResource.model_validate(response)
    assert response["status"] == "completed", response["status"]
    kinds = [item["type"] for item in response["output"]]
    assert ("function_call" if "tools" in request else "message") in kinds, kinds
    return "passed"


saw = {}
for name, request in CHECKS.items():
    try:
        saw[name] = check(request)
    except Exception as e:
        saw[name] = f"{type(e).__name__}: {e}"
        if isinstance(e, urllib.request.HTTPError):
            saw[name] += e.read().decode()
print(json.dumps(saw))
