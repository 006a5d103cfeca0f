'use strict'
// Reads and checks the configuration that soak renders: config.json, extra.js and the certificate that they name.
// `node config.js DIRECTORY` only checks. Plain enough for Node 14.

const fs = require('fs')
const path = require('path')
const tls = require('tls')
const vm = require('vm')

const KINDS = {
  generation: 'number',
  host: 'string',
  httpPort: 'number',
  httpsPort: 'number',
  tcpPort: 'number',
  bundle: 'string',
  origins: 'object',
  routes: 'object',
  workers: 'number'
}

/**
 * Returns all that a worker needs, as JSON: the configuration with the PEM text of its bundle and the user's own lines.
 * Throws an Error that says what is wrong.
 */
function read (directory) {
  const config = JSON.parse(fs.readFileSync(path.join(directory, 'config.json'), 'utf8'))
  for (const name of Object.keys(config)) {
    if (!Object.keys(KINDS).includes(name)) throw new Error(`config.json: unknown key '${name}'`)
  }
  for (const [name, kind] of Object.entries(KINDS)) {
    // eslint-disable-next-line valid-typeof
    if (typeof config[name] !== kind) throw new Error(`config.json: '${name}' must be of type ${kind}`)
  }
  if (config.origins.length === 0) throw new Error("config.json: 'origins' is empty")
  const pem = fs.readFileSync(config.bundle, 'utf8')
  tls.createSecureContext({ cert: pem, key: pem }) // throws when they do not belong together
  const filename = path.join(directory, 'extra.js')
  const whole = { ...config, pem, extra: { filename, text: fs.readFileSync(filename, 'utf8') } }
  extended(whole)
  return whole
}

/** Returns the user's own lines as a function of `proxy`, which is what they may change, and `require`. */
function extended (config) {
  const { filename, text } = config.extra
  return vm.compileFunction(text, ['proxy', 'require'], { filename })
}

/** Says in one line what is wrong: for a syntax error also the line and the text. */
function words (error) {
  const stack = String((error && error.stack) || error).split('\n')
  const until = stack.findIndex((line) => /^\s+at /.test(line))
  const lines = (until < 0 ? stack : stack.slice(0, until)).map((line) => line.trim())
  return lines.filter((line) => line && !/^\^+$/.test(line)).join(': ')
}

module.exports = { extended, read, words }

if (require.main === module) {
  try {
    read(process.argv[2])
  } catch (error) {
    process.stderr.write(`soak: refused: ${words(error)}\n`)
    process.exit(1)
  }
}
