// Drives "gokprobe dap" with the client library of VS Code's adapter tests, as the arguments say: the command, or the port where it listens, and in JSON pid,
// source, line, condition and text. Prints "armed", then each line that comes, and waits for a line on standard input: then it removes the log point, prints
// "removed", waits again, and disconnects.
'use strict';
const readline = require('readline');
const { DebugClient } = require('@vscode/debugadapter-testsupport');

const [command, scenario] = process.argv.slice(2);
const { pid, source, line, condition, text } = JSON.parse(scenario);
const input = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function drive(client) {
	client.defaultTimeout = 20 * 60 * 1000; // ends what hangs
	await client.start(/^\d+$/.test(command) ? Number(command) : undefined);
	const able = (await client.initializeRequest()).body;
	if (!able.supportsLogPoints || !able.supportsConditionalBreakpoints) throw new Error('log points are not supported');
	client.on('output', (e) => {
		if (e.body.category === 'stdout') console.log(`${e.body.source.path}:${e.body.line}: ${e.body.output.trimEnd()}`);
	});
	await Promise.all([client.waitForEvent('initialized'), client.attachRequest({ pid })]);
	const set = async (breakpoints) => (await client.setBreakpointsRequest({ source: { path: source }, breakpoints })).body.breakpoints;
	const [point] = await set([{ line, condition, logMessage: text }]);
	if (!point.verified || point.line !== line) throw new Error(`not armed: ${JSON.stringify(point)}`);
	await client.configurationDoneRequest();
	if ((await client.threadsRequest()).body.threads.length === 0) throw new Error('no threads');
	console.log('armed');
	await input.next();
	if ((await set([])).length !== 0) throw new Error('something is left');
	console.log('removed');
	await input.next();
	await Promise.all([client.waitForEvent('terminated'), client.disconnectRequest({ terminateDebuggee: true })]);
	console.log('detached');
}

const client = new DebugClient(command, 'dap', 'gokprobe');
drive(client).then(() => process.exit(0), (err) => {
	console.log(`failed: ${err.message}`);
	process.exit(1);
});
