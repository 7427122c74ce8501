// Runs the vendors' clients for JavaScript, and npm's `ai`, against servers of agents. The arguments and the output are
// those of clients.py.

import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import Anthropic from '@anthropic-ai/sdk';
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import { Ollama } from 'ollama';
import OpenAI from 'openai';

const DOUBLE = {
  type: 'object', properties: { n: { type: 'integer' } }, required: ['n'], additionalProperties: false,
};
const double = ({ n }) => String(n * 2);
const ask = [{ role: 'user', content: 'How many?' }];

function openaiCases(url) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'key', maxRetries: 0 });
  const tools = [{
    type: 'function',
    function: { name: 'double', description: 'Doubles', parameters: DOUBLE, parse: JSON.parse, function: double },
  }];
  const end = (answer) => [answer.choices[0].message.content, answer.choices[0].finish_reason];
  return ['openai', [
    ['chat', 'search', async (model) => end(await client.chat.completions.create({ model, messages: ask }))],
    ['chat stream helper', 'search', async (model) =>
      end(await client.chat.completions.stream({ model, messages: ask }).finalChatCompletion())],
    ['chat tools', 'double', async (model) =>
      end(await client.chat.completions.runTools({ model, messages: [...ask], tools }).finalChatCompletion())],
    ['chat tools streamed', 'double', async (model) =>
      end(await client.chat.completions.runTools({ model, messages: [...ask], tools, stream: true }).finalChatCompletion())],
    ['responses', 'search', async (model) => {
      const answer = await client.responses.create({ model, input: 'How many?' });
      return [answer.output_text, answer.status];
    }],
    ['responses stream helper', 'search', async (model) => {
      const answer = await client.responses.stream({ model, input: 'How many?' }).finalResponse();
      return [answer.output_text, answer.status];
    }],
  ]];
}

function anthropicCases(url) {
  const client = new Anthropic({ baseURL: url, apiKey: 'key', maxRetries: 0 });
  const text = (answer) => answer.content.filter(({ type }) => type === 'text').map((block) => block.text).join('');
  const request = (model) => ({ model, max_tokens: 100, messages: [...ask] });
  return ['anthropic', [
    ['messages', 'search', async (model) => {
      const answer = await client.messages.create(request(model));
      return [text(answer), answer.stop_reason];
    }],
    ['messages stream helper', 'search', async (model) => {
      const answer = await client.messages.stream(request(model)).finalMessage();
      return [text(answer), answer.stop_reason];
    }],
    ['messages tools streamed', 'double', async (model) => {
      const tools = [{ name: 'double', description: 'Doubles', input_schema: DOUBLE }];
      const first = await client.messages.stream({ ...request(model), tools }).finalMessage();
      const results = first.content.filter(({ type }) => type === 'tool_use').map((call) =>
        ({ type: 'tool_result', tool_use_id: call.id, content: double(call.input) }));
      const messages = [...ask, { role: 'assistant', content: first.content }, { role: 'user', content: results }];
      const answer = await client.messages.stream({ ...request(model), messages, tools }).finalMessage();
      return [text(answer), answer.stop_reason];
    }],
  ]];
}

function ollamaCases(url) {
  const client = new Ollama({ host: url });
  return ['ollama', [
    ['chat', 'search', async (model) => {
      const answer = await client.chat({ model, messages: ask });
      return [answer.message.content, answer.done_reason];
    }],
    ['chat streamed', 'search', async (model) => {
      let text = '';
      let reason;
      for await (const part of await client.chat({ model, messages: ask, stream: true })) {
        text += part.message.content ?? '';
        reason = part.done_reason ?? reason;
      }
      return [text, reason];
    }],
  ]];
}

function aiCases(name, provider) {
  const tools = {
    double: tool({ description: 'Doubles', inputSchema: jsonSchema(DOUBLE), execute: async (input) => double(input) }),
  };
  return [name, [
    ['generateText', 'search', async (model) => {
      const answer = await generateText({ model: provider(model), prompt: 'How many?', maxRetries: 0 });
      return [answer.text, answer.finishReason];
    }],
    ['streamText', 'search', async (model) => {
      let failure;
      const answer = streamText({
        model: provider(model), prompt: 'How many?', maxRetries: 0, onError: ({ error }) => { failure = error; },
      });
      let text = '';
      for await (const piece of answer.textStream) text += piece;
      if (failure) throw failure;
      return [text, await answer.finishReason];
    }],
    ['streamText tools', 'double', async (model) => {
      let failure;
      const answer = streamText({
        model: provider(model), prompt: 'How many?', tools, stopWhen: stepCountIs(3), maxRetries: 0,
        onError: ({ error }) => { failure = error; },
      });
      await answer.consumeStream();
      if (failure) throw failure;
      return [await answer.text, await answer.finishReason];
    }],
  ]];
}

for (const [number, url] of process.argv.slice(2).entries()) {
  const compatible = createOpenAICompatible({ name: 'turnstream', baseURL: `${url}/v1`, apiKey: 'key' });
  const anthropic = createAnthropic({ baseURL: `${url}/v1`, apiKey: 'key' });
  const all = [
    openaiCases(url), anthropicCases(url), ollamaCases(url), aiCases('ai openai-compatible', compatible),
    aiCases('ai anthropic', anthropic),
  ];
  for (const [client, cases] of all) {
    for (const [name, model, run] of cases) {
      const line = { server: number, client: `${client} (JavaScript)`, case: name, model };
      try {
        line.answer = await run(model);
      } catch (error) {
        line.error = String(error);
      }
      console.log(JSON.stringify(line));
    }
  }
}
