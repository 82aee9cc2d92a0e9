// node compile_modules.mjs PACKAGES MODULES.jsonl: prints a JSON line {compiler, id, error} for every module that a compiler
// refuses, and a line {compiler, compiled} at the end. PACKAGES is a node_modules folder with `webgpu` (Dawn, whose compiler is
// Tint) and `naga-wasm` (the compiler behind wgpu, to Metal's and Direct3D's languages).
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , packages, source] = process.argv;
const modules = fs.readFileSync(source, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line));

const load = (name) => import(pathToFileURL(createRequire(path.resolve(packages, 'x.js')).resolve(name)));

function report(compiler, refused) {
  for (const [id, error] of refused) console.log(JSON.stringify({ compiler, id, error }));
  console.log(JSON.stringify({ compiler, compiled: modules.length - refused.length }));
}

async function tint({ create, globals }) {
  Object.assign(globalThis, globals);
  globalThis.gpu = create(['backend=null']); // Dawn ends or hangs if this is collected while its devices live
  const adapter = await gpu.requestAdapter();
  const device = await adapter.requestDevice({
    requiredFeatures: ['subgroups', 'shader-f16'].filter((f) => adapter.features.has(f)),
    requiredLimits: Object.fromEntries(
      ['maxComputeWorkgroupStorageSize', 'maxComputeInvocationsPerWorkgroup', 'maxComputeWorkgroupSizeX', 'maxStorageBuffersPerShaderStage']
        .map((k) => [k, adapter.limits[k]])),
  });
  const refused = [];
  for (const m of modules) {
    device.pushErrorScope('validation');
    const module = device.createShaderModule({ code: m.enables.map((e) => `enable ${e};\n`).join('') + m.text });
    const { messages } = await module.getCompilationInfo();
    let error = messages.find((x) => x.type !== 'info')?.message;
    if (!error) device.createComputePipeline({ layout: 'auto', compute: { module, entryPoint: 'main' } });
    error ??= (await device.popErrorScope())?.message;
    if (error) refused.push([m.id, error]);
  }
  report('Tint', refused);
}

function naga({ parseWgsl, validate, writeHlsl, writeMsl }) {
  const refused = [];
  for (const m of modules) {
    try {
      const module = parseWgsl(m.text);
      const info = validate(module);
      writeMsl(module, info, { langVersion: [2, 4] });
      writeHlsl(module, info, { shaderModel: '6_6' });
      info.free();
      module.free();
    } catch (e) {
      refused.push([m.id, String(e.formatted ?? e)]);
    }
  }
  report('naga', refused);
}

await tint(await load('webgpu'));
naga(await load('naga-wasm'));
process.exit(0);
