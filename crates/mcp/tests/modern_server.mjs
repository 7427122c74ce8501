// A server of the revision 2026-07-28, based on the official SDK: `modern_server.mjs stdio`, or `… http`, which
// listens on a free port of 127.0.0.1 and prints its address. Clients of earlier revisions get the same tools. When
// a call of `slow` starts, ends or is canceled, the server writes a line to the file MCP_LOG, or to stderr if that
// is not set.
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { toNodeHandler } from '@modelcontextprotocol/node';
import {
    acceptedContent, createMcpHandler, createRequestStateCodec, inputRequired, inputResponse, McpServer,
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const log = line =>
    process.env.MCP_LOG ? appendFileSync(process.env.MCP_LOG, `${line}\n`) : console.error(line);
const text = text => ({ content: [{ type: 'text', text }] });
const state = createRequestStateCodec({ key: crypto.getRandomValues(new Uint8Array(32)) });

// Tools that `change_tools` has added. Over HTTP, each request has its own server, which reads them here.
const added = [];
let httpHandler;
const addTool = (server, name) => server.registerTool(name, { description: 'A tool added later' }, () => text(name));

function server() {
    const server = new McpServer(
        { name: 'modern', version: '1.0.0' },
        {
            capabilities: { tools: { listChanged: true } },
            instructions: 'A server for tests.',
            requestState: { verify: state.verify },
        },
    );
    server.registerTool('add', {
        description: 'Adds two numbers',
        inputSchema: z.object({ a: z.number(), b: z.number() }),
        outputSchema: z.object({ sum: z.number() }),
        annotations: { readOnlyHint: true },
    }, ({ a, b }) => ({ ...text(`${a + b}`), structuredContent: { sum: a + b } }));

    server.registerTool('slow', {
        description: 'Takes `steps` steps of `ms` milliseconds and reports progress after each',
        inputSchema: z.object({ steps: z.number().int().default(5), ms: z.number().int().default(100) }),
    }, async ({ steps, ms }, { mcpReq }) => {
        log('slow: started');
        const progressToken = mcpReq._meta?.progressToken;
        for (let progress = 1; progress <= steps; progress++) {
            await sleep(ms, null, { signal: mcpReq.signal }).catch(() => {});
            if (mcpReq.signal.aborted) {
                log('slow: cancelled');
                return text('cancelled');
            }
            if (progressToken === undefined) continue;
            const params = { progressToken, progress, total: steps, message: `step ${progress}` };
            await mcpReq.notify({ method: 'notifications/progress', params });
        }
        log('slow: done');
        return text(`took ${steps} steps`);
    });

    server.registerTool('picture', {
        description: 'Returns a text and a picture',
        annotations: { readOnlyHint: true },
    }, () => ({ content: [...text('A pixel.').content, { type: 'image', data: PIXEL, mimeType: 'image/png' }] }));

    server.registerTool('fail', { description: 'Always fails' }, () => ({ ...text('the disk is full'), isError: true }));

    server.registerTool('region', {
        description: 'Returns its argument, which is also sent as a header over HTTP',
        inputSchema: z.object({ region: z.string().meta({ 'x-mcp-header': 'Region' }) }),
    }, ({ region }) => text(region));

    const Answer = z.object({ approve: z.boolean(), reason: z.string().default('none') });
    server.registerTool('ask', {
        description: 'Asks the user before it deletes',
        inputSchema: z.object({ file: z.string() }),
        annotations: { destructiveHint: true },
    }, async ({ file }, ctx) => {
        const answer = inputResponse(ctx.mcpReq.inputResponses, 'approval');
        if (answer.kind === 'missing') {
            const approval = inputRequired.elicit({ message: `Delete ${file}?`, requestedSchema: Answer });
            return inputRequired({ inputRequests: { approval }, requestState: await state.mint({ file }, ctx) });
        }
        if (ctx.mcpReq.requestState()?.file !== file) {
            return { ...text('the answer is for another file'), isError: true };
        }
        const accepted = acceptedContent(ctx.mcpReq.inputResponses, 'approval', Answer);
        return text(accepted?.approve ? `deleted ${file}, reason: ${accepted.reason}` : `kept ${file}: ${answer.action}`);
    });

    server.registerTool('change_tools', { description: 'Adds a tool' }, () => {
        const name = `added_${added.length + 1}`;
        added.push(name);
        if (httpHandler) httpHandler.notify.toolsChanged();
        else addTool(server, name);
        return text(`added ${name}`);
    });
    added.forEach(name => addTool(server, name));
    return server;
}

if (process.argv[2] === 'stdio') {
    serveStdio(server);
} else if (process.argv[2] === 'http') {
    httpHandler = createMcpHandler(server);
    const http = createServer(toNodeHandler(httpHandler));
    http.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${http.address().port}/mcp`));
} else {
    console.error('usage: modern_server.mjs stdio|http');
    process.exit(2);
}
