"""OpenAI's SDK for Python: python3 openai_python.py URL KEY [CASE...]"""

import json
import sys

import openai
import pydantic

url, key, *chosen = sys.argv[1:]
client = openai.OpenAI(base_url=url, api_key=key, max_retries=0)
MODEL = "model"
WEATHER = {
    "type": "function",
    "name": "weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
BOTH = 'call weather {"city":"Oslo"} | call weather {"city":"Rome"}'


class City(pydantic.BaseModel):
    city: str
    degrees: int


def items(output):
    """The output without its ids."""
    saw = []
    for i in output:
        if i.type == "message":
            saw.append(",".join(f"{p.type}: {p.text if p.type == 'output_text' else p.refusal}" for p in i.content))
        elif i.type == "reasoning":
            saw.append("reasoning: " + ",".join(p.text for p in [*i.summary, *(i.content or [])]))
        elif i.type == "function_call":
            saw.append(f"{i.name}({i.arguments})")
        elif i.type == "custom_tool_call":
            saw.append(f"{i.name}[{i.input}]")
        else:
            saw.append(i.type)
    return saw


def seen(r, **more):
    u = r.usage
    usage = u and [u.input_tokens, u.input_tokens_details.cached_tokens, u.output_tokens, u.output_tokens_details.reasoning_tokens]
    return {"status": r.status, "output": items(r.output), "usage": usage, **more}


def whole(prompt, **more):
    return seen(client.responses.create(model=MODEL, input=prompt, **more))


def streamed(prompt, **more):
    """The plain stream, as the wire has it."""
    deltas, last = "", None
    for e in client.responses.create(model=MODEL, input=prompt, stream=True, **more):
        if e.type.endswith(".delta"):
            deltas += e.delta
        last = e
    return seen(last.response, deltas=deltas, last=last.type)


def helper(prompt, **more):
    """The stream that collects its own answer."""
    deltas = ""
    with client.responses.stream(model=MODEL, input=prompt, **more) as stream:
        for e in stream:
            if e.type.endswith(".delta"):
                deltas += e.delta
        return seen(stream.get_final_response(), deltas=deltas)


def parsed(stream):
    prompt = 'say {"city":"Oslo","degrees":7}'
    if not stream:
        return client.responses.parse(model=MODEL, input=prompt, text_format=City).output_parsed.model_dump()
    with client.responses.stream(model=MODEL, input=prompt, text_format=City) as s:
        return s.get_final_response().output_parsed.model_dump()


def loop(stream, tools, prompt):
    """Answers calls of tools until there are none, with the whole conversation."""
    conversation = [{"role": "user", "content": prompt}]
    saw = []
    while len(saw) < 5:
        more = {"model": MODEL, "input": conversation, "tools": tools, "store": False, "include": ["reasoning.encrypted_content"]}
        if stream:
            with client.responses.stream(**more) as s:
                r = s.get_final_response()
        else:
            r = client.responses.create(**more)
        saw.append(items(r.output))
        conversation += [i.model_dump(exclude={"parsed_arguments"}, exclude_none=True) for i in r.output]
        calls = [i for i in r.output if i.type.endswith("_call")]
        if not calls:
            return saw
        for i in calls:
            text = f"sunny in {json.loads(i.arguments)['city']}" if i.type == "function_call" else f"ran {i.input}"
            conversation.append({"type": i.type + "_output", "call_id": i.call_id, "output": text})
    raise RuntimeError("the tools are called for ever")


def chained(prompt):
    """A conversation that the server keeps, until it is asked to forget it."""
    first = client.responses.create(model=MODEL, input=prompt, tools=[WEATHER])
    outputs = [{"type": "function_call_output", "call_id": i.call_id, "output": "sunny"} for i in first.output]
    second = client.responses.create(model=MODEL, input=outputs, tools=[WEATHER], previous_response_id=first.id)
    kept = client.responses.retrieve(second.id)
    before = [i.type for i in client.responses.input_items.list(second.id, order="asc")]
    client.responses.delete(second.id)
    try:
        after = items(client.responses.retrieve(second.id).output)
    except openai.NotFoundError as e:
        after = e.status_code
    return {"second": items(second.output), "kept": items(kept.output), "before": before, "after": after}


HELLO = "think Let me see. | say Hello there."
LOOP = BOTH + ' || think More. | call weather {"city":"Bern"}'
EXEC = [{"type": "custom", "name": "exec", "description": "Runs a command."}]
COMMAND = 'custom exec echo "a\\b\u00e9\U0001f600"\nls'

CASES = {
    "whole": lambda: whole(HELLO),
    "streamed": lambda: streamed(HELLO),
    "helper": lambda: helper(HELLO),
    "summary": lambda: helper(HELLO, reasoning={"summary": "auto"}),
    "resumed": lambda: helper('say One. | call weather {"city":"Oslo"} | say Two.', tools=[WEATHER]),
    "refusal": lambda: helper("refuse I will not."),
    "length": lambda: streamed("say Too long | length"),
    "parsed": lambda: parsed(False),
    "parsedHelper": lambda: parsed(True),
    "loop": lambda: loop(False, [WEATHER], LOOP),
    "loopHelper": lambda: loop(True, [WEATHER], LOOP),
    "custom": lambda: loop(False, EXEC, COMMAND),
    "customHelper": lambda: loop(True, EXEC, COMMAND),
    "failed": lambda: streamed("say Not yet | fail"),
    "failedHelper": lambda: helper("say Not yet | fail"),
    "cut": lambda: streamed("say Not yet | cut"),
    "wholeCut": lambda: whole("say Not yet | cut"),
    "session": lambda: [whole(HELLO, prompt_cache_key="one")["status"] for _ in range(2)],
    "badField": lambda: whole(HELLO, temperature=3),
    "wrongKey": lambda: seen(client.with_options(api_key="sk-wrong").responses.create(model=MODEL, input=HELLO)),
    "unknownModel": lambda: seen(client.responses.create(model="unknown", input=HELLO)),
    "chained": lambda: chained(BOTH + " || say Both are sunny."),
    "previous": lambda: whole(HELLO, previous_response_id="resp_1"),
}

saw = {}
for name, case in CASES.items():
    if chosen and name not in chosen:
        continue
    try:
        saw[name] = case()
    except Exception as e:  # what a program sees of it
        body = getattr(e, "body", None) or {}
        saw[name] = {"error": type(e).__name__, "status": getattr(e, "status_code", None), "code": body.get("code"), "param": body.get("param")}
        if not body:
            saw[name]["message"] = str(e)[:200]
print(json.dumps(saw))
