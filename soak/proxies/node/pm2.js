'use strict'
// The main process of the adapter node: pm2 in the foreground, without a daemon, with a cluster of server.js.
// HUP: check the configuration, then what `pm2 reload` does. TERM: end all at once.
// Arguments: the directory of the configuration, the directory of the modules.

const cluster = require('cluster')
const fs = require('fs')
const path = require('path')
const { createRequire } = require('module')
const { read, words } = require('./config')

const [directory, modules] = process.argv.slice(2)
const APP = 'soak'
const home = path.join(directory, 'pm2')

// Everything of pm2 stays in the run's directory; nothing of the user's settings for pm2 or of his account there gets in,
// and nothing goes out: no version check, no agent.
for (const name of Object.keys(process.env)) {
  if (/^(PM2|KEYMETRICS)_|^(SECRET_KEY|PUBLIC_KEY|MACHINE_NAME|INSTANCE_NAME|pm_id)$/.test(name)) delete process.env[name]
}
// A Unix socket's path has 107 bytes, and the run's directory may be deeper.
const short = path.join('/proc/self/cwd', path.relative(process.cwd(), home))
Object.assign(process.env, {
  PM2_HOME: home,
  PM2_DAEMON_RPC_PORT: path.join(short, 'rpc.sock'),
  PM2_DAEMON_PUB_PORT: path.join(short, 'pub.sock'),
  PM2_INTERACTOR_RPC_PORT: path.join(short, 'interactor.sock'),
  PM2_PROGRAMMATIC: 'true',
  PM2_DISCRETE_MODE: 'true',
  PM2_DISABLE_VERSION_CHECK: 'true',
  PM2_NO_INTERACTION: 'true',
  PM2_AGENT_ONLINE: 'true'
})
fs.mkdirSync(home, { recursive: true, mode: 0o700 })
const pm2 = createRequire(path.join(modules, 'x'))('pm2')

const accepted = path.join(home, 'accepted.json')

/** Reads, checks and keeps the configuration: what a worker is started with at any later time was checked as it is. */
function accept () {
  const config = read(directory)
  fs.writeFileSync(`${accepted}.new`, JSON.stringify(config), { mode: 0o600 })
  fs.renameSync(`${accepted}.new`, accepted)
  return config
}

const say = (text) => process.stdout.write(`soak: ${text}\n`)

let busy = true // until all workers have started, and during a reload: pm2 refuses another one
let again = false

function free () {
  busy = false
  if (again) reload()
}

function reload () {
  again = busy
  if (busy) return
  let config
  try {
    config = accept()
  } catch (error) {
    say(`refused: ${words(error)}`)
    return
  }
  busy = true
  pm2.reload(APP, (error) => {
    say(error ? `refused: pm2: ${error.message || error}` : `reloaded: generation ${config.generation}`)
    free()
  })
}

function stop () {
  for (const worker of Object.values(cluster.workers)) worker.process.kill('SIGKILL')
  process.exit(0)
}

function start () {
  const log = path.join(path.dirname(directory), 'proxy.out')
  const app = {
    name: APP,
    script: path.join(__dirname, 'server.js'),
    args: [accepted, modules],
    cwd: process.cwd(),
    exec_mode: 'cluster',
    instances: accept().workers,
    wait_ready: true,
    listen_timeout: 8000,
    kill_timeout: 4000,
    treekill: false, // a worker has no children
    merge_logs: true,
    out_file: log,
    error_file: log,
    pmx: false,
    vizion: false
  }
  pm2.connect(true, (error) => {
    if (error) throw error
    pm2.start(app, (error) => {
      if (error) {
        say(`refused: pm2: ${error.message || error}`)
        stop()
      }
      say('started')
      free()
    })
  })
}

process.on('SIGTERM', stop)
process.on('SIGHUP', reload)
start()
