"""An agent that reads files, as a graph of LangGraph with two nodes: the model and its tools.

    pip install langgraph
    OPENAI_API_KEY=… OPENAI_MODEL=gpt-5.2 python examples/state_graph.py

The calls of the model and of the tool are those of tool_loop.py. The supervisor decides about each call of the tool, counts
the usage and keeps the transcript. The agent gets the threads of sessions with `runner_labels={"language": "python"}`.
"""

# The types of LangGraph are incomplete.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import json
import operator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from tool_loop import complete, read_file
from troupe.runner import Task, agent, serve


@dataclass
class Context:
    """The data that a node needs in addition to the conversation."""

    task: Task


class State(TypedDict):
    """The conversation. Each node adds messages to it."""

    messages: Annotated[list[dict[str, Any]], operator.add]


async def model(state: State, runtime: Runtime[Context]) -> State:
    """Adds the next message of the model."""
    return {"messages": [await complete(runtime.context.task, state["messages"])]}


async def tools(state: State, runtime: Runtime[Context]) -> State:
    """Makes each call in the last message, if the thread may make it, and adds the results."""
    results: list[dict[str, Any]] = []
    for call in state["messages"][-1]["tool_calls"]:
        output = await read_file(runtime.context.task, json.loads(call["function"]["arguments"]))
        results.append({"role": "tool", "tool_call_id": call["id"], "content": output})
    return {"messages": results}


def after_model(state: State) -> str:
    """Returns the node that follows the model."""
    return "tools" if state["messages"][-1].get("tool_calls") else END


GRAPH = (
    StateGraph(State, context_schema=Context)
    .add_node("model", model)
    .add_node("tools", tools)
    .add_edge(START, "model")
    .add_conditional_edges("model", after_model, ["tools", END])
    .add_edge("tools", "model")
    .compile()
)


@agent()
async def state_graph(task: Task) -> str:
    """Runs the graph to its end. The conversation continues with the next turn."""
    messages: list[dict[str, Any]] = task.state.get("messages", [])
    messages = [*messages, {"role": "user", "content": task.prompt or task.message}]
    async for state in GRAPH.astream({"messages": messages}, context=Context(task), stream_mode="values"):
        messages = state["messages"]
        # An interrupted turn must not leave a call without its result, which the provider would reject.
        if not messages[-1].get("tool_calls"):
            task.state["messages"] = messages
    return str(messages[-1]["content"])


if __name__ == "__main__":
    asyncio.run(serve(state_graph, labels={"language": "python"}, enforces_tools=True, enforces_read_only=True))
