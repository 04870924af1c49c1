"""Cohere's SDK for Python, and LangChain's: python3 cohere_python.py URL KEY MODEL [CASE...]"""

import json
import sys

import cohere
from langchain_cohere import CohereRerank
from langchain_core.documents import Document

url, key, model, *chosen = sys.argv[1:]
v1 = cohere.Client(key, base_url=url)
v2 = cohere.ClientV2(key, base_url=url)
chain = CohereRerank(cohere_api_key=key, base_url=url, model=model, top_n=2)
QUERY = "Which is best?"
TEXTS = ["low 0.10", "high 0.90", "middle 0.50"]
ONCE = {"max_retries": 1}


def scores(r):
    return [[i.index, i.relevance_score] for i in r.results]


def documents(r):
    return [i.document.text for i in r.results]


def billed(r):
    return r.meta.billed_units.search_units


def compressed():
    return [d.page_content for d in chain.compress_documents([Document(page_content=t) for t in TEXTS], QUERY)]


CASES = {
    "whole": lambda: scores(v2.rerank(model=model, query=QUERY, documents=TEXTS)),
    "top": lambda: scores(v2.rerank(model=model, query=QUERY, documents=TEXTS, top_n=2, max_tokens_per_doc=512)),
    "units": lambda: billed(v2.rerank(model=model, query=QUERY, documents=TEXTS)),
    "first": lambda: scores(v1.rerank(model=model, query=QUERY, documents=TEXTS, top_n=2)),
    "documents": lambda: documents(v1.rerank(model=model, query=QUERY, documents=TEXTS, return_documents=True)),
    "objects": lambda: scores(v1.rerank(model=model, query=QUERY, documents=[{"title": "t", "body": t} for t in TEXTS], rank_fields=["title", "body"])),
    "chain": lambda: chain.rerank(TEXTS, QUERY),
    "compressed": compressed,
    "flaky": lambda: scores(v2.rerank(model=model, query="flaky", documents=TEXTS, request_options=ONCE)),
    "failing": lambda: scores(v2.rerank(model=model, query="failing", documents=TEXTS, request_options=ONCE)),
    "broken": lambda: scores(v2.rerank(model=model, query="broken", documents=TEXTS, request_options={"max_retries": 0})),
    "refused": lambda: scores(v2.rerank(model=model, query="refused", documents=TEXTS)),
    "wrongKey": lambda: scores(cohere.ClientV2("sk-wrong", base_url=url).rerank(model=model, query=QUERY, documents=TEXTS)),
    "unknownModel": lambda: scores(v2.rerank(model="unknown", query=QUERY, documents=TEXTS)),
    "noDocuments": lambda: scores(v2.rerank(model=model, query=QUERY, documents=[])),
    "noMoney": lambda: scores(v2.rerank(model=model, query=QUERY, documents=TEXTS)),
}

saw = {}
for name, case in CASES.items():
    if chosen and name not in chosen:
        continue
    try:
        saw[name] = case()
    except Exception as e:  # what a program sees of it
        body = getattr(e, "body", None)
        saw[name] = {"status": getattr(e, "status_code", None), "message": body.get("message") if isinstance(body, dict) else str(e)[:200]}
print(json.dumps(saw))
