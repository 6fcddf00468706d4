"""Record the spans of agent frameworks: a small agent with tools, run for real against a scripted model.

    python tools/record_frameworks.py ENVIRONMENTS [NAME…]

Each recipe runs in its own environment `ENVIRONMENTS/env-<framework>` (`INSTALL` lists the packages; with
`--install` they are installed by `uv`) and exports its spans to a file, which is stored, without paths of
this machine, as `tests/telemetry/recorded/<name>.json`. The model is an OpenAI-compatible server on loopback
whose answers are scripted: a call of `get_weather`, then one of `add`, then the answer.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from recorded_files import written_as_json  # noqa: E402

RECORDED = ROOT / "tests" / "telemetry" / "recorded"
RECORDED_CASES = RECORDED.with_name("recorded_cases")
QUESTION = "What is the weather in Oslo, and what is 2 + 3?"
ANSWER = "It is sunny in Oslo, and 2 + 3 is 5."
CALLS = (("get_weather", {"city": "Oslo"}), ("add", {"a": 2, "b": 3}))
LONGEST = 20_000
"""Characters of one attribute that are stored: some frameworks log whole source files."""
UNREAD = re.compile(
    r"trace_state|links|dropped_attributes|trace_flags|severity_(number|text)|(input|output)\.mime_type"
    r"|(langfuse|langsmith|traceloop)\..*(checkpoint_ns|langgraph_(path|step|triggers)|lc_versions|ls_(integration|provider)|tags)"
    r"|langsmith\.(metadata\.LANGSMITH_.*|trace\..*)|traceloop\.(entity\.path|workflow\.name)"
    r"|llm\.(finish_reason|invocation_parameters)|code\..*|crew_.*|crewai\..*|logfire\.(json_schema|level_num|msg|span_type)"
    r"|gen_ai\.(event|headers|response\.(finish_reasons|id)|task\.(id|name|parent|status)|workflow)\b.*|mastra\.metadata\.(body|headers|runId|tool.*)"
    r"|ai\.(response\.(avg.*|finishReason|id|ms.*|providerMetadata|timestamp)|settings\..*)|messaging\..*|server\..*"
    r"|reference_example_id|attachments|dangerously_allow_filesystem|invalid_tool_calls|system_fingerprint|logprobs"
)
"""Names that nothing reads and that every span repeats: a recording is to be read by people, too."""

INSTALL = {
    "openai-agents": [
        "openai-agents",
        "openinference-instrumentation-openai-agents",
        "opentelemetry-instrumentation-openai-agents",
        "opentelemetry-exporter-otlp-proto-http",
    ],
    "phoenix": ["arize-phoenix", "pandas", "pyarrow"],
    "langgraph": [
        "langgraph",
        "langchain",
        "langchain-openai",
        "langfuse",
        "openinference-instrumentation-langchain",
        "opentelemetry-instrumentation-langchain",
    ],
    "strands": ["strands-agents[openai]"],
    "pydantic-ai": ["pydantic-ai-slim[openai]"],
    "smolagents": ["smolagents[openai]", "openinference-instrumentation-smolagents"],
    "google-adk": ["google-adk", "litellm", "mcp", "openinference-instrumentation-google-adk"],
    "llama-index": [
        "llama-index-core",
        "llama-index-llms-openai-like",
        "openinference-instrumentation-llama-index",
        "opentelemetry-instrumentation-llamaindex",
    ],
    "autogen": [
        "autogen-agentchat",
        "autogen-ext[openai]",
        "openinference-instrumentation-autogen-agentchat",
        "openinference-instrumentation-openai",
    ],
    "agent-framework": ["agent-framework-core", "agent-framework-openai"],
    "haystack": ["haystack-ai", "openinference-instrumentation-haystack"],
    "logfire": ["logfire", "openai-agents"],
    "adot": ["aws-opentelemetry-distro", "openai-agents", "openinference-instrumentation-openai-agents"],
    "vercel-ai": ["ai@5", "@ai-sdk/openai-compatible@1", "zod", "@opentelemetry/sdk-trace-node@2"],
    "mastra": [
        "@mastra/core",
        "@mastra/observability",
        "@mastra/otel-exporter",
        "@ai-sdk/openai-compatible",
        "zod",
    ],
    "crewai": [
        "crewai",
        "openinference-instrumentation-crewai",
        "opentelemetry-instrumentation-crewai",
        "openinference-instrumentation-openai",
        "opentelemetry-instrumentation-openai",
    ],
}

COMMON = '''
import json, os, sys
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

class FileExporter(SpanExporter):
    """Writes each span as a line, with its scope, which the SDK's own JSON leaves out."""
    def export(self, spans):
        with open(os.environ["SPANS"], "a") as file:
            for span in spans:
                document = json.loads(span.to_json())
                scope = span.instrumentation_scope
                document["scope"] = {"name": scope.name, "version": scope.version} if scope else {}
                file.write(json.dumps(document) + "\\n")
        return SpanExportResult.SUCCESS

provider = TracerProvider(resource=Resource({"service.name": "weather"}))
provider.add_span_processor(SimpleSpanProcessor(FileExporter()))
trace.set_tracer_provider(provider)
URL, QUESTION = os.environ["OPENAI_BASE_URL"], os.environ["QUESTION"]

def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: Name of the city.
    """
    return "sunny"

def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b
'''

OPENAI_AGENTS = """
import asyncio
from agents import Agent, Runner, function_tool
tools = [function_tool(get_weather), function_tool(add)]
agent = Agent(name="Guide", instructions="Be brief.", model="gpt-4o-mini", tools=tools)
print(asyncio.run(Runner.run(agent, QUESTION)).final_output)
"""

AGENT_FRAMEWORK = """
import asyncio
from agent_framework import observability
from agent_framework.openai import OpenAIChatCompletionClient
observability.enable_instrumentation(enable_sensitive_data=True)
client = OpenAIChatCompletionClient(model="gpt-4o-mini", base_url=URL, api_key="sk-test")
agent = client.as_agent(name="Guide", instructions="Be brief.", tools=[get_weather, add])
"""

LOGFIRE = """
import logfire
logfire.configure(send_to_logfire=False, console=False, service_name="weather",
                  additional_span_processors=[SimpleSpanProcessor(FileExporter())])
logfire.instrument_openai_agents()
"""

ADOT = """
from amazon.opentelemetry.distro.llo_handler import LLOHandler
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor

class FileLogs:
    "Writes each record as a line."
    def export(self, batch):
        with open(os.environ["SPANS"], "a") as file:
            for each in batch:
                record = json.loads(each.to_json()) if hasattr(each, "to_json") else {}
                record = record or json.loads(each.log_record.to_json())
                scope = each.instrumentation_scope
                record["scope"] = {"name": scope.name} if scope else {}
                file.write(json.dumps(record) + "\\n")
    def shutdown(self): pass
    def force_flush(self, timeout_millis=0): return True

class WithoutContent(FileExporter):
    "What ADOT's exporter does: the content of spans becomes records."
    logs = LoggerProvider(resource=provider.resource)
    logs.add_log_record_processor(SimpleLogRecordProcessor(FileLogs()))
    handler = LLOHandler(logs)
    def export(self, spans):
        return super().export(self.handler.process_spans(spans))

provider._active_span_processor._span_processors = ()
provider.add_span_processor(SimpleSpanProcessor(WithoutContent()))
OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)
"""

HAYSTACK = """
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import ComponentTool, create_tool_from_function
from openinference.instrumentation.haystack import HaystackInstrumentor
HaystackInstrumentor().instrument(tracer_provider=provider)
def agent_of(system_prompt, tools=(), model="gpt-4o-mini"):
    generator = OpenAIChatGenerator(model=model)
    return Agent(chat_generator=generator, tools=list(tools), system_prompt=system_prompt)
"""

LANGGRAPH = """
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
tools = [tool(get_weather), tool(add)]
agent = create_agent(ChatOpenAI(model="gpt-4o-mini"), tools, system_prompt="Be brief.", name="Guide")
print(agent.invoke({"messages": [{"role": "user", "content": QUESTION}]})["messages"][-1].content)
"""

ADK = """
import asyncio
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types
model = LiteLlm(model="openai/gpt-4o-mini")
agent = LlmAgent(name="guide", model=model, instruction="Be brief.", tools=[get_weather, add])

async def main():
    runner = InMemoryRunner(agent=agent, app_name="weather")
    session = await runner.session_service.create_session(app_name="weather", user_id="user")
    message = types.Content(role="user", parts=[types.Part(text=QUESTION)])
    async for event in runner.run_async(user_id="user", session_id=session.id, new_message=message):
        if event.is_final_response():
            print(event.content.parts[0].text)

asyncio.run(main())
"""

LLAMA_INDEX = """
import asyncio
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike
model = OpenAILike(model="gpt-4o-mini", api_base=URL, api_key="sk-test", is_chat_model=True,
                   is_function_calling_model=True)
agent = FunctionAgent(name="Guide", tools=[get_weather, add], llm=model, system_prompt="Be brief.",
                      streaming=False)

async def main():
    print(await agent.run(QUESTION))

asyncio.run(main())
"""

CREWAI = """
from crewai import Agent, Crew, LLM, Task
from crewai.tools import tool
model = LLM(model="openai/gpt-4o-mini", base_url=URL, api_key="sk-test")
guide = Agent(role="Guide", goal="Answer questions", backstory="Be brief.", llm=model,
              tools=[tool("get_weather")(get_weather), tool("add")(add)])
task = Task(description=QUESTION, expected_output="One sentence.", agent=guide)
print(Crew(agents=[guide], tasks=[task], tracing=False).kickoff())
"""

JAVASCRIPT_EXPORTER = """
const time = ([s, n]) => (BigInt(s) * 1000000000n + BigInt(n)).toString();
const exporter = {
  export(spans, done) {
    for (const span of spans) {
      const context = span.spanContext();
      fs.appendFileSync(process.env.SPANS, JSON.stringify({
        traceId: context.traceId, spanId: context.spanId,
        parentSpanId: span.parentSpanContext?.spanId ?? "",
        name: span.name, startTimeUnixNano: time(span.startTime), endTimeUnixNano: time(span.endTime),
        status: { code: span.status.code, message: span.status.message },
        attributes: span.attributes, events: [],
        resource: { attributes: { "service.name": "weather" } },
        scope: { name: span.instrumentationScope.name },
      }) + "\\n");
    }
    done({ code: 0 });
  },
  async shutdown() {},
};
"""

VERCEL_AI = (
    """
import fs from "node:fs";
import { NodeTracerProvider } from "@opentelemetry/sdk-trace-node";
import { SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { generateText, streamText, tool, stepCountIs } from "ai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { z } from "zod";
"""
    + JAVASCRIPT_EXPORTER
    + """
new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }).register();
const baseURL = process.env.OPENAI_BASE_URL;
const weather = createOpenAICompatible({ name: "weather", baseURL, apiKey: "sk-test" });
const tools = {
  get_weather: tool({
    description: "The weather in a city.", inputSchema: z.object({ city: z.string() }),
    execute: async () => "sunny",
  }),
  add: tool({
    description: "Add two numbers.", inputSchema: z.object({ a: z.number(), b: z.number() }),
    execute: async ({ a, b }) => a + b,
  }),
};
const settings = {
  model: weather("gpt-4o-mini"), system: "Be brief.", prompt: process.env.QUESTION, tools,
  stopWhen: stepCountIs(5), experimental_telemetry: { isEnabled: true, functionId: "Guide" },
};
"""
)

MASTRA = (
    """
import fs from "node:fs";
import { Agent } from "@mastra/core/agent";
import { Mastra } from "@mastra/core/mastra";
import { createTool } from "@mastra/core/tools";
import { Observability } from "@mastra/observability";
import { OtelExporter } from "@mastra/otel-exporter";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { z } from "zod";
"""
    + JAVASCRIPT_EXPORTER
    + """
const provider = { custom: { endpoint: "http://127.0.0.1" } };
const exporters = [new OtelExporter({ provider, exporter, signals: { logs: false } })];
const observability = new Observability({ configs: { otel: { serviceName: "weather", exporters } } });
const baseURL = process.env.OPENAI_BASE_URL;
const weather = createOpenAICompatible({ name: "weather", baseURL, apiKey: "sk-test" });
const tools = {
  get_weather: createTool({
    id: "get_weather", description: "The weather in a city.", inputSchema: z.object({ city: z.string() }),
    execute: async () => "sunny",
  }),
  add: createTool({
    id: "add", description: "Add two numbers.", inputSchema: z.object({ a: z.number(), b: z.number() }),
    execute: async ({ a, b }) => a + b,
  }),
};
const guide = new Agent({
  id: "guide", name: "Guide", instructions: "Be brief.", model: weather("gpt-4o-mini"), tools,
});
const mastra = new Mastra({ agents: { guide }, observability, logger: false });
const agent = mastra.getAgent("guide");
const talk = { tracingOptions: { metadata: { sessionId: "mastra-session" } } };
console.log((await agent.generate(process.env.QUESTION, talk)).text);
await mastra.shutdown?.();
"""
)

RECIPES: dict[str, tuple[str, str]] = {
    "openai-agents.openinference": (
        "openai-agents",
        """
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)
"""
        + OPENAI_AGENTS,
    ),
    "openai-agents.traceloop": (
        "openai-agents",
        """
from opentelemetry.instrumentation.openai_agents import OpenAIAgentsInstrumentor
OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)
"""
        + OPENAI_AGENTS,
    ),
    "langgraph.openinference": (
        "langgraph",
        """
from openinference.instrumentation.langchain import LangChainInstrumentor
LangChainInstrumentor().instrument(tracer_provider=provider)
"""
        + LANGGRAPH,
    ),
    "langgraph.traceloop": (
        "langgraph",
        """
from opentelemetry.instrumentation.langchain import LangchainInstrumentor
LangchainInstrumentor().instrument(tracer_provider=provider)
"""
        + LANGGRAPH,
    ),
    "langgraph.langfuse": (
        "langgraph",
        """
from langfuse import Langfuse
from langfuse.langchain import CallbackHandler
Langfuse(public_key="pk-test", secret_key="sk-test", host="http://127.0.0.1:9", tracer_provider=provider)
handler = CallbackHandler(public_key="pk-test")
"""
        + LANGGRAPH.replace("QUESTION}]})", 'QUESTION}]}, {"callbacks": [handler]})'),
    ),
    "langgraph.langsmith": (
        "langgraph",
        """
from langchain_core.tracers.langchain import LangChainTracer
from langsmith import Client
from langsmith._internal._serde import dumps_json
client = Client(api_url="http://127.0.0.1:9", api_key="x", auto_batch_tracing=False)

class Collector(LangChainTracer):
    runs = []
    def _persist_run(self, run):
        self.runs.append(run)
    def _persist_run_single(self, run):
        pass
    def _update_run_single(self, run):
        pass

collector = Collector(client=client)
"""
        + LANGGRAPH.replace(
            "QUESTION}]})",
            'QUESTION}]}, {"callbacks": [collector], "metadata": {"thread_id": "langsmith-thread"}})',
        )
        + """
def exported(run):
    # As the client sends it, and as exports have it.
    children = [exported(child) for child in run.child_runs]
    return {**json.loads(dumps_json(client._run_transform(run))), "child_runs": children}

with open(os.environ["SPANS"], "w") as file:
    file.write(json.dumps(exported(collector.runs[0])))
""",
    ),
    "langgraph.langsmith-otel": (
        "langgraph",
        """
os.environ |= {"LANGSMITH_TRACING": "true", "LANGSMITH_OTEL_ENABLED": "true", "LANGSMITH_OTEL_ONLY": "true",
               "LANGSMITH_API_KEY": "x", "LANGSMITH_ENDPOINT": "http://127.0.0.1:9"}
"""
        + LANGGRAPH.replace("QUESTION}]})", 'QUESTION}]}, {"metadata": {"thread_id": "langsmith-thread"}})')
        + """
from langchain_core.tracers.langchain import wait_for_all_tracers
wait_for_all_tracers()
""",
    ),
    "strands.own": (
        "strands",
        """
from strands import Agent, tool
from strands.models.openai import OpenAIModel
agent = Agent(name="Guide", model=OpenAIModel(client_args={"base_url": URL}, model_id="gpt-4o-mini"),
              tools=[tool(get_weather), tool(add)], system_prompt="Be brief.", callback_handler=None,
              trace_attributes={"session.id": "strands-session"})
print(agent(QUESTION))
""",
    ),
    "pydantic-ai.own": (
        "pydantic-ai",
        """
from pydantic_ai import Agent
from pydantic_ai.models.instrumented import InstrumentationSettings
Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
agent = Agent("openai-chat:gpt-4o-mini", name="Guide", system_prompt="Be brief.", tools=[get_weather, add])
print(agent.run_sync(QUESTION).output)
""",
    ),
    "smolagents.openinference": (
        "smolagents",
        """
from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from smolagents import OpenAIServerModel, ToolCallingAgent, tool
SmolagentsInstrumentor().instrument(tracer_provider=provider)
model = OpenAIServerModel("gpt-4o-mini", api_base=URL, api_key="sk-test")
agent = ToolCallingAgent(tools=[tool(get_weather), tool(add)], model=model, name="Guide",
                         description="A guide.", stream_outputs=False)
print(agent.run(QUESTION))
""",
    ),
    "google-adk.own": ("google-adk", ADK),
    "google-adk.openinference": (
        "google-adk",
        """
from openinference.instrumentation.google_adk import GoogleADKInstrumentor
GoogleADKInstrumentor().instrument(tracer_provider=provider)
"""
        + ADK,
    ),
    "llama-index.openinference": (
        "llama-index",
        """
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
LlamaIndexInstrumentor().instrument(tracer_provider=provider)
"""
        + LLAMA_INDEX,
    ),
    "llama-index.traceloop": (
        "llama-index",
        """
from opentelemetry.instrumentation.llamaindex import LlamaIndexInstrumentor
LlamaIndexInstrumentor().instrument(tracer_provider=provider)
"""
        + LLAMA_INDEX,
    ),
    "haystack.openinference": (
        "haystack",
        HAYSTACK
        + """
agent = agent_of("Be brief.", [create_tool_from_function(get_weather), create_tool_from_function(add)])
print(agent.run(messages=[ChatMessage.from_user(QUESTION)])["messages"][-1].text)
""",
    ),
    "openai-agents.logfire": ("logfire", LOGFIRE + OPENAI_AGENTS),
    "openai-agents.adot": ("adot", ADOT + OPENAI_AGENTS),
    "agent-framework.own": (
        "agent-framework",
        AGENT_FRAMEWORK
        + """
async def main():
    print((await agent.run(QUESTION)).text)

asyncio.run(main())
""",
    ),
    "mastra.own": ("mastra", MASTRA),
    "vercel-ai.own": ("vercel-ai", VERCEL_AI + "console.log((await generateText(settings)).text);"),
    "vercel-ai.own-streamed": (
        "vercel-ai",
        VERCEL_AI + "for await (const part of streamText(settings).textStream) process.stdout.write(part);",
    ),
    "crewai.openinference": (
        "crewai",
        """
from openinference.instrumentation.crewai import CrewAIInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor
CrewAIInstrumentor().instrument(tracer_provider=provider)
OpenAIInstrumentor().instrument(tracer_provider=provider)
"""
        + CREWAI,
    ),
    "crewai.traceloop": (
        "crewai",
        """
from opentelemetry.instrumentation.crewai import CrewAIInstrumentor
from opentelemetry.instrumentation.openai import OpenAIInstrumentor
CrewAIInstrumentor().instrument(tracer_provider=provider)
OpenAIInstrumentor().instrument(tracer_provider=provider)
"""
        + CREWAI,
    ),
}
"""Name of the recording → environment and program."""

FAILED = "The run failed."
EXPERT = "Sunny, as always."
"""What an agent says whose instructions name it an expert."""

OPENAI_AGENTS_FAILED = """
import asyncio
from agents import Agent, Runner
try:
    asyncio.run(Runner.run(Agent(name="Guide", instructions="Be brief.", model="broken"), QUESTION))
except Exception:
    print("The run failed.")
"""

OPENAI_AGENTS_TWO_RUNS = """
import asyncio
from agents import Agent, Runner, trace as one_trace
agent = Agent(name="Guide", instructions="Be brief.", model="gpt-4o-mini")

async def main():
    with one_trace("Chat"):
        first = await Runner.run(agent, "Is it sunny in Oslo?")
        talk = [*first.to_input_list(), {"role": "user", "content": "And in Rome?"}]
        print((await Runner.run(agent, talk)).final_output)

asyncio.run(main())
"""

OPENAI_AGENTS_HANDOFF = """
import asyncio
from agents import Agent, Runner
expert = Agent(name="Expert", instructions="You are an expert.", model="gpt-4o-mini")
agent = Agent(name="Guide", instructions="Be brief.", model="gpt-4o-mini", handoffs=[expert])
print(asyncio.run(Runner.run(agent, QUESTION)).final_output)
"""

OPENAI_AGENTS_DELEGATION = """
import asyncio
from agents import Agent, Runner
expert = Agent(name="Expert", instructions="You are an expert.", model="gpt-4o-mini")
tools = [expert.as_tool(tool_name="ask_expert", tool_description="Ask an expert.")]
agent = Agent(name="Guide", instructions="Be brief.", model="gpt-4o-mini", tools=tools)
print(asyncio.run(Runner.run(agent, QUESTION)).final_output)
"""


def _openai_agents(instrumentation: str, program: str) -> tuple[str, str]:
    """A program with OpenInference's (`openinference`) or OpenLLMetry's (`opentelemetry`) instrumentation."""
    return (
        "openai-agents",
        f"from {instrumentation}.instrumentation.openai_agents import OpenAIAgentsInstrumentor\n"
        f"OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)\n{program}",
    )


PYDANTIC_AI = """
from pydantic_ai import Agent
from pydantic_ai.models.instrumented import InstrumentationSettings
Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
"""

AUTOGEN = """
import asyncio
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient
information = {"vision": False, "function_calling": True, "json_output": False, "family": "unknown",
               "structured_output": False}
def model():
    return OpenAIChatCompletionClient(model="gpt-4o-mini", model_info=information)
def look_up(city: str) -> str:
    "Look a city up."
    raise ValueError("no such city")
"""

CASES: dict[str, tuple[str, str]] = {
    "openai-agents.openinference-failed": _openai_agents("openinference", OPENAI_AGENTS_FAILED),
    "openai-agents.traceloop-failed": _openai_agents("opentelemetry", OPENAI_AGENTS_FAILED),
    "openai-agents.openinference-two-runs": _openai_agents("openinference", OPENAI_AGENTS_TWO_RUNS),
    "openai-agents.traceloop-two-runs": _openai_agents("opentelemetry", OPENAI_AGENTS_TWO_RUNS),
    "openai-agents.openinference-handoff": _openai_agents("openinference", OPENAI_AGENTS_HANDOFF),
    "openai-agents.traceloop-handoff": _openai_agents("opentelemetry", OPENAI_AGENTS_HANDOFF),
    "smolagents.openinference-failed": (
        "smolagents",
        """
from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from smolagents import OpenAIServerModel, ToolCallingAgent
SmolagentsInstrumentor().instrument(tracer_provider=provider)
model = OpenAIServerModel("broken", api_base=URL, api_key="sk-test")
try:
    ToolCallingAgent(tools=[], model=model, name="Guide", stream_outputs=False).run(QUESTION)
except Exception:
    print("The run failed.")
""",
    ),
    "pydantic-ai.own-failed": (
        "pydantic-ai",
        PYDANTIC_AI
        + """
try:
    Agent("openai-chat:broken", name="Guide", system_prompt="Be brief.").run_sync(QUESTION)
except Exception:
    print("The run failed.")
""",
    ),
    "pydantic-ai.own-delegation": (
        "pydantic-ai",
        PYDANTIC_AI
        + """
expert = Agent("openai-chat:gpt-4o-mini", name="Expert", system_prompt="You are an expert.")
guide = Agent("openai-chat:gpt-4o-mini", name="Guide", system_prompt="Be brief.")

@guide.tool_plain
async def ask_expert(question: str) -> str:
    return (await expert.run(question)).output

print(guide.run_sync(QUESTION).output)
""",
    ),
    "google-adk.own-delegation": (
        "google-adk",
        ADK.replace(
            "agent = ",
            """
from google.adk.tools.agent_tool import AgentTool
expert = LlmAgent(name="expert", description="An expert.", model=model, instruction="You are an expert.")
agent = """,
        ).replace("tools=[get_weather, add]", "tools=[AgentTool(agent=expert)]"),
    ),
    "google-adk.openinference-delegation": (
        "google-adk",
        """
from openinference.instrumentation.google_adk import GoogleADKInstrumentor
GoogleADKInstrumentor().instrument(tracer_provider=provider)
"""
        + ADK.replace(
            "agent = ",
            """
from google.adk.tools.agent_tool import AgentTool
expert = LlmAgent(name="expert", description="An expert.", model=model, instruction="You are an expert.")
agent = """,
        ).replace("tools=[get_weather, add]", "tools=[AgentTool(agent=expert)]"),
    ),
    "openai-agents.openinference-delegation": _openai_agents("openinference", OPENAI_AGENTS_DELEGATION),
    "openai-agents.traceloop-delegation": _openai_agents("opentelemetry", OPENAI_AGENTS_DELEGATION),
    "openai-agents.logfire-delegation": ("logfire", LOGFIRE + OPENAI_AGENTS_DELEGATION),
    "openai-agents.logfire-failed": ("logfire", LOGFIRE + OPENAI_AGENTS_FAILED),
    "haystack.openinference-failed": (
        "haystack",
        HAYSTACK
        + """
try:
    agent_of("Be brief.", model="broken").run(messages=[ChatMessage.from_user(QUESTION)])
except Exception:
    print("The run failed.")
""",
    ),
    "haystack.openinference-delegation": (
        "haystack",
        HAYSTACK
        + """
def ask_expert(question: str) -> str:
    "Ask an expert."
    return agent_of("You are an expert.").run(messages=[ChatMessage.from_user(question)])["last_message"].text

agent = agent_of("Be brief.", [create_tool_from_function(ask_expert)])
print(agent.run(messages=[ChatMessage.from_user(QUESTION)])["messages"][-1].text)
""",
    ),
    "agent-framework.own-failed": (
        "agent-framework",
        AGENT_FRAMEWORK.replace("gpt-4o-mini", "broken")
        + """
try:
    asyncio.run(agent.run(QUESTION))
except Exception:
    print("The run failed.")
""",
    ),
    "agent-framework.own-delegation": (
        "agent-framework",
        AGENT_FRAMEWORK.replace(
            "agent = ",
            """
expert = client.as_agent(name="Expert", instructions="You are an expert.")
ask_expert = expert.as_tool(name="ask_expert", description="Ask an expert.", arg_name="question")
agent = """,
        ).replace("tools=[get_weather, add]", "tools=[ask_expert]")
        + """
async def main():
    print((await agent.run(QUESTION)).text)

asyncio.run(main())
""",
    ),
    "mastra.own-failed": (
        "mastra",
        MASTRA.replace('weather("gpt-4o-mini")', 'weather("broken")').replace(
            "console.log((await agent.generate(process.env.QUESTION, talk)).text);",
            'await agent.generate(process.env.QUESTION, talk).catch(() => console.log("The run failed."));',
        ),
    ),
    "mastra.own-delegation": (
        "mastra",
        MASTRA.replace(
            "const guide = ",
            """const expert = new Agent({
  id: "expert", name: "Expert", description: "An expert.", instructions: "You are an expert.",
  model: weather("gpt-4o-mini"),
});
const guide = """,
        ).replace('weather("gpt-4o-mini"), tools,', 'weather("gpt-4o-mini"), agents: { expert },'),
    ),
    "vercel-ai.own-failed": (
        "vercel-ai",
        VERCEL_AI.replace('weather("gpt-4o-mini")', 'weather("broken")')
        + 'await generateText(settings).catch(() => console.log("The run failed."));',
    ),
    "vercel-ai.own-delegation": (
        "vercel-ai",
        VERCEL_AI
        + """
const expert = { ...settings, system: "You are an expert.", tools: {},
                 experimental_telemetry: { isEnabled: true, functionId: "Expert" } };
settings.tools = {
  ask_expert: tool({
    description: "Ask an expert.", inputSchema: z.object({ question: z.string() }),
    execute: async ({ question }) => (await generateText({ ...expert, prompt: question })).text,
  }),
};
console.log((await generateText(settings)).text);
""",
    ),
    "autogen.own-failed-tool": (
        "autogen",
        AUTOGEN
        + """
async def main():
    agent = AssistantAgent("Guide", model(), tools=[look_up], system_message="Be brief.",
                           reflect_on_tool_use=True)
    print((await agent.run(task=QUESTION)).messages[-1].content)

asyncio.run(main())
""",
    ),
    "autogen.openinference-failed-tool": (
        "autogen",
        """
from openinference.instrumentation.autogen_agentchat import AutogenAgentChatInstrumentor
AutogenAgentChatInstrumentor().instrument(tracer_provider=provider)
"""
        + AUTOGEN
        + """
async def main():
    agent = AssistantAgent("Guide", model(), tools=[look_up], system_message="Be brief.",
                           reflect_on_tool_use=True)
    print((await agent.run(task=QUESTION)).messages[-1].content)

asyncio.run(main())
""",
    ),
    "autogen.openinference-team": (
        "autogen",
        """
from openinference.instrumentation.autogen_agentchat import AutogenAgentChatInstrumentor
AutogenAgentChatInstrumentor().instrument(tracer_provider=provider)
"""
        + AUTOGEN
        + """
async def main():
    team = RoundRobinGroupChat([
        AssistantAgent("Expert", model(), system_message="You are an expert."),
        AssistantAgent("Guide", model(), system_message="Be brief."),
    ], termination_condition=MaxMessageTermination(3))
    print((await team.run(task=QUESTION)).messages[-1].content)

asyncio.run(main())
""",
    ),
    "agent-framework.own-two-turns": (
        "agent-framework",
        AGENT_FRAMEWORK
        + """
async def main():
    talk = agent.create_session()
    await agent.run(QUESTION, session=talk)
    print((await agent.run("And again?", session=talk)).text)

asyncio.run(main())
""",
    ),
}
"""Runs of another kind than that small agent: in `recorded_cases`."""


class ScriptedModel(BaseHTTPRequestHandler):
    """Chat completions: the calls in turn, by what the conversation already has, then the answer."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.endswith("/responses"):
            self._respond_new(body)
            return
        # Some frameworks send results as messages of the user.
        answered = sum(message["role"] == "assistant" for message in body["messages"])
        offered = {tool["function"]["name"] for tool in body.get("tools") or ()}
        message: dict[str, Any] = {"role": "assistant", "content": ANSWER}
        if body["model"] == "broken":
            error = {"message": "no such model", "type": "invalid_request_error", "code": "broken"}
            self._send("application/json", json.dumps({"error": error}), status=400)
            return
        other = sorted(offered - {name for name, _ in CALLS} - {"final_answer"})
        if "You are an expert" in json.dumps(body["messages"]):
            message["content"] = EXPERT
        elif other and not answered:
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [_call(answered, other[0], _arguments(body, other[0]))],
            }
        elif answered < len(CALLS) and CALLS[answered][0] in offered:
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [_call(answered, *CALLS[answered])],
            }
        elif "final_answer" in offered:
            call = _call(answered, "final_answer", {"answer": ANSWER})
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        self._respond(body, message)

    def _respond_new(self, body: dict[str, Any]) -> None:
        """The Responses interface."""
        if body["model"] == "broken":
            error = {"message": "no such model", "type": "invalid_request_error", "code": "broken"}
            self._send("application/json", json.dumps({"error": error}), status=400)
            return
        items = body["input"] if isinstance(body["input"], list) else []
        answered = sum(item.get("type") == "function_call_output" for item in items)
        offered = [tool["name"] for tool in body.get("tools") or ()]
        given = {tool["name"]: tool["parameters"].get("required") or () for tool in body.get("tools") or ()}
        own = tuple((name, dict.fromkeys(given[name], "Is it sunny in Oslo?")) for name in offered)
        calls = CALLS if CALLS[0][0] in offered else own
        if answered < len(calls):
            name, arguments = calls[answered]
            call = {"type": "function_call", "id": f"fc_{answered + 1}", "call_id": f"call_{answered + 1}"}
            output = {**call, "name": name, "arguments": json.dumps(arguments), "status": "completed"}
        else:
            answer_text = EXPERT if "expert" in str(body.get("instructions")) else ANSWER
            text = {"type": "output_text", "text": answer_text, "annotations": []}
            output = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
            output["content"] = [text]
        usage = {"input_tokens": 50, "output_tokens": 10, "total_tokens": 60}
        usage |= {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        head = {"id": f"resp_{answered}", "object": "response", "created_at": 1, "model": body["model"]}
        rest = {"tools": body.get("tools") or [], "tool_choice": "auto", "parallel_tool_calls": True}
        answer = {**head, **rest, "status": "completed", "output": [output], "usage": usage}
        self._send("application/json", json.dumps({**answer, "instructions": body.get("instructions")}))

    def _respond(self, body: dict[str, Any], message: dict[str, Any]) -> None:
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        usage = {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60}
        head = {"id": "chatcmpl-1", "created": 1, "model": body.get("model", "")}
        if body.get("stream"):
            delta = dict(message)
            if delta.get("tool_calls"):
                delta["tool_calls"] = [{"index": 0, **call} for call in delta["tool_calls"]]
            chunks = [
                {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
                {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
                {"choices": [], "usage": usage},
            ]
            lines = [
                f"data: {json.dumps({**head, 'object': 'chat.completion.chunk', **chunk})}\n\n"
                for chunk in chunks
            ]
            self._send("text/event-stream", "".join((*lines, "data: [DONE]\n\n")))
            return
        choice = {"index": 0, "message": message, "finish_reason": reason}
        answer = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        self._send("application/json", json.dumps(answer))

    def _send(self, kind: str, text: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _call(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{number + 1}", "type": "function", "function": function}


def _arguments(body: dict[str, Any], name: str) -> dict[str, Any]:
    """Arguments for a tool of a case: each required one is a question."""
    (function,) = (tool["function"] for tool in body["tools"] if tool["function"]["name"] == name)
    return dict.fromkeys(function["parameters"].get("required") or (), "Is it sunny in Oslo?")


PHOENIX = "openai-agents.phoenix"
PHOENIX_PORT = 16006
TO_PHOENIX = f"""
from openinference.instrumentation import using_session
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
exporter = OTLPSpanExporter("http://127.0.0.1:{PHOENIX_PORT}/v1/traces")
provider.add_span_processor(SimpleSpanProcessor(exporter))
using_session("phoenix-session").__enter__()
"""
FROM_PHOENIX = f"""
import sys
from phoenix.client import Client
frame = Client(base_url="http://127.0.0.1:{PHOENIX_PORT}").spans.get_spans_dataframe()
frame.to_csv(sys.argv[1] + ".csv")
# A column of Parquet has one type.
text = frame["attributes.output.value"].astype(str)
frame.assign(**{{"attributes.output.value": text}}).to_parquet(sys.argv[1] + ".parquet")
"""


def record_phoenix(environments: Path, url: str, folder: Path) -> str:
    """Run the OpenAI Agents recipe with Phoenix as receiver, and save Phoenix's data frame."""
    phoenix = environments / "env-phoenix" / "bin"
    if not phoenix.exists():
        return "arize-phoenix is not installed"
    settings = {"PHOENIX_WORKING_DIR": str(folder / "phoenix"), "PHOENIX_TELEMETRY_ENABLED": "false"}
    settings |= {"PHOENIX_PORT": str(PHOENIX_PORT), "PHOENIX_HOST": "127.0.0.1", "PHOENIX_GRPC_PORT": "16007"}
    server = subprocess.Popen(
        [phoenix / "phoenix", "serve"],
        env={**os.environ, **settings},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(PHOENIX_PORT)
        framework, program = RECIPES["openai-agents.openinference"]
        RECIPES[PHOENIX] = (framework, TO_PHOENIX + program)
        if problem := record(environments, PHOENIX, url, folder):
            return problem
        (RECORDED / f"{PHOENIX}.json").unlink()
        done = subprocess.run(
            [phoenix / "python", "-c", FROM_PHOENIX, RECORDED / PHOENIX],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stderr[-3000:] if done.returncode else ""
    finally:
        server.terminate()
        server.wait()


def _wait_for(port: int) -> None:
    for _ in range(300):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.5)


def install(environments: Path, framework: str) -> None:
    """Install a framework in an environment of its own."""
    place = environments / f"env-{framework}"
    if framework in ("vercel-ai", "mastra"):
        command = ["npm", "install", "--legacy-peer-deps", "--prefix", str(place), *INSTALL[framework]]
        subprocess.run(command, check=True)
        return
    subprocess.run(["uv", "venv", "--quiet", str(place)], check=True)
    packages = ["opentelemetry-sdk", *INSTALL[framework]]
    python = str(place / "bin" / "python")
    subprocess.run(["uv", "pip", "install", "--quiet", "--python", python, *packages], check=True)


def record(environments: Path, name: str, url: str, folder: Path) -> str:
    """Run a recipe; return why it could not be recorded, or an empty text."""
    framework, program = RECIPES.get(name) or CASES[name]
    place = environments / f"env-{framework}"
    is_script = (place / "node_modules").exists()
    python = place / "bin" / "python"
    if not is_script and not python.exists():
        return f"{framework} is not installed"
    spans = folder / f"{name}.jsonl"
    spans.unlink(missing_ok=True)
    script = place / f"{name}.mjs" if is_script else folder / f"{name}.py"
    script.write_text(program if is_script else COMMON + program + "\nprovider.force_flush()\n")
    environment = {
        **{key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ},
        "OPENAI_BASE_URL": url,
        "OPENAI_API_BASE": url,
        "OPENAI_API_KEY": "sk-test",
        "SPANS": str(spans),
        "QUESTION": QUESTION,
        "CREWAI_DISABLE_TELEMETRY": "true",
        "OPENAI_AGENTS_DISABLE_TRACING": "0",
        "ENABLE_SENSITIVE_DATA": "true",
        "TRACELOOP_TRACE_CONTENT": "true",
        # Without these, Google ADK and Microsoft's framework leave out all texts.
        "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental"
        if name.startswith(("google-adk.own", "agent-framework"))
        else "",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_AND_EVENT",
    }
    done = subprocess.run(
        ["node" if is_script else python, script],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if not any(said in done.stdout for said in (ANSWER, EXPERT, FAILED)) or not spans.exists():
        return f"{name} failed:\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
    documents = [json.loads(line) for line in spans.read_text().splitlines()]
    text = written_as_json([without_unread(scrubbed(each)) for each in documents])
    kept = RECORDED_CASES if name in CASES else RECORDED
    kept.mkdir(parents=True, exist_ok=True)
    (kept / f"{name}.json").write_text(_without_machine(text, environments, folder) + "\n")
    return ""


def scrubbed(document: dict[str, Any]) -> dict[str, Any]:
    """A span without what belongs to this machine or is not needed; other documents as they are."""
    if "attributes" not in document:
        return document
    document["resource"] = {"attributes": {"service.name": "weather"}}
    if "events" not in document:
        return document
    document["events"] = [each for each in document["events"] if each["name"] != "exception"] or []
    attributes = document["attributes"]
    for key, value in attributes.items():
        if isinstance(value, str) and len(value) > LONGEST:
            attributes[key] = value[:LONGEST]
    return document


def without_unread(value: Any) -> Any:
    """A document without the names that nothing reads."""
    if isinstance(value, list):
        return [without_unread(each) for each in value]
    if isinstance(value, dict):
        return {name: without_unread(each) for name, each in value.items() if not UNREAD.fullmatch(name)}
    return value


def _without_machine(text: str, environments: Path, folder: Path) -> str:
    for place in (folder, environments, Path.home(), ROOT):
        text = text.replace(str(place), "/somewhere")
    text = re.sub(r"http://127\.0\.0\.1:\d+", "http://127.0.0.1", text)
    return text.replace(os.uname().nodename, "machine")


def main() -> int:
    """Record all frameworks, or those named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("environments", type=Path)
    parser.add_argument("names", nargs="*", choices=[[], *RECIPES, *CASES, PHOENIX], default=[])
    parser.add_argument("--install", action="store_true")
    arguments = parser.parse_args()
    names = arguments.names or [*RECIPES, *CASES, PHOENIX]
    if arguments.install:
        for framework in dict.fromkeys(
            "phoenix" if each == PHOENIX else (RECIPES | CASES)[each][0] for each in names
        ):
            install(arguments.environments, framework)
    server = ThreadingHTTPServer(("127.0.0.1", 0), ScriptedModel)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    folder = arguments.environments / "recorded"
    folder.mkdir(exist_ok=True)
    failures = {}
    for name in names:
        if name == PHOENIX:
            why = record_phoenix(arguments.environments, url, folder)
        else:
            why = record(arguments.environments, name, url, folder)
        if why:
            failures[name] = why
    for name in names:
        print(f"{name}: {failures.get(name) or 'recorded'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
