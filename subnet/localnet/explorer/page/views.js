// One function per page: from the JSON of the explorer's server to elements.

import { el, svg } from "./dom.js";
import { heat } from "./heat.js";
import {
  RAO, SHARE, account, ago, amount, bar, blockLink, count, empty, moment, panel, result, said, share, span, spark,
  subnetLink, table, tao, tile, told,
} from "./words.js";

const perDay = (data, tempo) => (tempo ? 86400 / (data.block_time * tempo) : 0);

function extrinsics(data, rows, { withSigner = true } = {}) {
  if (!rows.length) return empty("None yet.");
  return el("div", { class: "scroll tall" }, table([
    { title: "Block", cell: (x) => blockLink(x.block) },
    { title: "Age", cell: (x) => el("span", { class: "muted", title: moment(x.time) }, ago(x.time, data.time)) },
    ...(withSigner ? [{ title: "Signer", cell: (x) => account(x.signer, data.labels) }] : []),
    { title: "Call", cell: (x) => el("code", {}, x.call) },
    { title: "Arguments", class: "wide", cell: (x) => told(x, data.labels) },
    { title: "Result", cell: result },
    { title: "Fee", number: true, cell: (x) => (x.fee === null ? "–" : amount(x.fee, 6)) },
  ], rows));
}

export function overview(data, ui) {
  return [
    el("div", { class: "tiles" },
      tile("Block", count(data.block), `every ${data.block_time} s`),
      tile("Issuance", tao(data.issuance)),
      tile("Staked", tao(data.staked)),
      tile("Subnets", count(data.subnets.length - 1), "and root"),
      tile("Waiting", count(data.waiting), "extrinsics"),
      tile("Genesis", el("span", { class: "key", title: data.genesis }, data.genesis.slice(0, 12) + "…"), `spec ${data.spec}`)),
    panel("Subnets", null, el("div", { class: "scroll" }, table([
      { title: "Subnet", cell: (s) => subnetLink(s.netuid, s.name), key: (s) => s.netuid },
      { title: "", cell: (s) => said(s.symbol) },
      { title: "Price τ", number: true, cell: (s) => amount(s.price, 4), key: (s) => s.price },
      { title: "Pool τ", number: true, cell: (s) => amount(s.tao_in), key: (s) => s.tao_in },
      { title: "Pool α", number: true, cell: (s) => amount(s.alpha_in), key: (s) => s.alpha_in },
      { title: "Outside α", number: true, cell: (s) => amount(s.alpha_out), key: (s) => s.alpha_out },
      { title: "Last epoch α", number: true, cell: (s) => amount(s.paid), key: (s) => s.paid },
      { title: "α per day", number: true, cell: (s) => amount(s.paid * perDay(data, s.tempo), 0), key: (s) => s.paid * perDay(data, s.tempo) },
      { title: "Neurons", number: true, cell: (s) => `${s.neurons_count} / ${s.max_uids}`, key: (s) => s.neurons_count },
      { title: "Burn τ", number: true, cell: (s) => amount(s.burn), key: (s) => s.burn },
      { title: "Tempo", number: true, cell: (s) => count(s.tempo), key: (s) => s.tempo },
      { title: "Next epoch", number: true, cell: (s) => (s.next_epoch && s.netuid ? `in ${count(Math.max(s.next_epoch - data.block, 0))}` : "–") },
      { title: "Owner", cell: (s) => account(s.owner_coldkey, data.labels) },
    ], data.subnets, { id: "subnets", sort: ui.sort.subnets }))),
    panel("Latest extrinsics", null, extrinsics(data, data.extrinsics)),
    panel("Latest blocks", null, el("div", { class: "scroll" }, table(BLOCK(data), data.blocks))),
  ];
}

const BLOCK = (data) => [
  { title: "Block", cell: (b) => blockLink(b.number) },
  { title: "Hash", cell: (b) => el("span", { class: "key", title: b.hash }, `${b.hash.slice(0, 18)}…`) },
  { title: "Age", cell: (b) => el("span", { class: "muted", title: moment(b.time) }, ago(b.time, data.time)) },
  { title: "Extrinsics", number: true, cell: (b) => b.extrinsics },
  { title: "Bytes", number: true, cell: (b) => count(b.bytes) },
];

export function subnet(data, ui) {
  const daily = perDay(data, data.tempo);
  const left = data.next_epoch === null ? null : Math.max(data.next_epoch - data.block, 0);
  const paid = data.netuid !== 0;
  return [
    el("h1", {}, `${data.netuid} `, said(data.name), el("small", {}, said(data.symbol), ` owner `, account(data.owner_coldkey, data.labels),
      data.started ? "" : " · not started")),
    el("div", { class: "tiles" },
      tile("Price", tao(data.price, 4), "per α"),
      tile("Pool", tao(data.tao_in), `and ${amount(data.alpha_in)} α`),
      tile("α outside", amount(data.alpha_out), `volume ${amount(data.subnet_volume)} τ`),
      tile("Paid in the last epoch", `${amount(data.paid)} α`, "without the owner's cut"),
      tile("Paid per day", `${amount(data.paid * daily, 0)} α`, "at that rate"),
      tile("Accrued", `${amount(data.pending_alpha_emission)} α`, "for the next epoch"),
      tile("Next epoch", paid && left !== null ? `${count(left)} blocks` : "–",
        paid && left !== null ? [bar(1 - left / data.tempo), `${span(left * data.block_time * 1000)} of ${span(data.tempo * data.block_time * 1000)}`] : null),
      tile("Registration", tao(data.burn), `${data.neurons_count} of ${data.max_uids} seats`)),
    panel("Metagraph", `${data.neurons_count} neurons`, data.neurons.length
      ? el("div", { class: "scroll tall" }, metagraph(data, daily, ui)) : empty("Nobody is registered.")),
    el("div", { class: "columns" },
      panel("Weights", "row: who set them, column: whom they rate", heat(ui.weights, data)),
      panel("Paid per epoch", data.epochs.length ? `α, the last ${data.epochs.length} epochs` : null, epochs(data))),
    data.identity ? panel("Identity", null, pairs(data.identity)) : null,
    el("section", { class: "panel" }, el("details", {}, el("summary", {}, "Parameters"), pairs(data.parameters))),
  ];
}

function metagraph(data, daily, ui) {
  const most = Math.max(...data.neurons.map((n) => n.incentive), 1);
  const history = (n) => data.epochs.slice(-24).map((epoch) => epoch.emission[n.uid] ?? 0);
  return table([
    { title: "UID", number: true, cell: (n) => n.uid, key: (n) => n.uid },
    { title: "Hotkey", cell: (n) => [account(n.hotkey, data.labels), n.hotkey === data.owner_hotkey ? el("span", { class: "tag" }, "owner") : null] },
    { title: "Coldkey", cell: (n) => account(n.coldkey, data.labels), key: (n) => n.coldkey },
    { title: "Permit", help: "may set weights that count", cell: (n) => (n.permit ? "yes" : el("span", { class: "muted" }, "–")), key: (n) => Number(n.permit) },
    { title: "Stake", help: "alpha, and root TAO by its weight", number: true, cell: (n) => amount(n.total_stake, 2), key: (n) => n.total_stake },
    { title: "Incentive", help: "share of the miners' half", number: true, cell: (n) => [bar(n.incentive / most), share(n.incentive)], key: (n) => n.incentive },
    { title: "Consensus", number: true, cell: (n) => share(n.consensus), key: (n) => n.consensus },
    { title: "Dividends", help: "share of the validators' half", number: true, cell: (n) => share(n.dividends), key: (n) => n.dividends },
    { title: "VTrust", number: true, cell: (n) => share(n.validator_trust), key: (n) => n.validator_trust },
    { title: "α / epoch", number: true, cell: (n) => amount(n.emission, 3), key: (n) => n.emission },
    { title: "α / day", help: "at the rate of the last epoch", number: true, cell: (n) => amount(n.emission * daily, 1), key: (n) => n.emission },
    { title: "Last epochs", cell: (n) => spark(history(n)) },
    { title: "Updated", help: "blocks since it set weights or registered", number: true, cell: (n) => count(data.block - n.last_update), key: (n) => -n.last_update },
    { title: "Registered", number: true, cell: (n) => blockLink(n.registered_at), key: (n) => n.registered_at },
    { title: "Axon", cell: (n) => n.axon ?? el("span", { class: "muted" }, "–") },
  ], data.neurons, { id: "neurons", sort: ui.sort.neurons });
}

function epochs(data) {
  if (!data.epochs.length) return empty("No epoch since this explorer runs.");
  const top = Math.max(...data.epochs.map((epoch) => epoch.paid), 1);
  const step = 600 / Math.max(data.epochs.length, 12);
  const bars = data.epochs.map((epoch, i) => {
    const height = Math.max((epoch.paid / top) * 130, epoch.paid ? 1 : 0);
    return svg("rect", { x: (i * step).toFixed(1), y: (140 - height).toFixed(1), width: Math.max(step - 2, 2).toFixed(1), height: height.toFixed(1), rx: 2 },
      svg("title", {}, `block ${count(epoch.block)}: ${amount(epoch.paid)} α`));
  });
  return [
    svg("svg", { class: "chart", viewBox: "0 0 600 142", preserveAspectRatio: "none", role: "img", "aria-label": "alpha paid per epoch" },
      svg("line", { x1: 0, x2: 600, y1: 141, y2: 141 }), bars),
    el("div", { class: "axis" }, el("span", {}, `block ${count(data.epochs[0].block)}`), el("span", {}, `highest ${amount(top)} α`),
      el("span", {}, `block ${count(data.epochs.at(-1).block)}`)),
  ];
}

const pairs = (values) =>
  el("dl", {}, Object.entries(values).map(([name, value]) =>
    el("div", {}, el("dt", {}, name.replaceAll("_", " ")), el("dd", {}, said(typeof value === "object" ? JSON.stringify(value) : String(value))))));

export function accounts(data, ui) {
  return [
    el("h1", {}, "Accounts", el("small", {}, `${count(data.count)} with money`)),
    panel("By worth", "stake valued at each pool's price", el("div", { class: "scroll" }, table([
      { title: "Account", cell: (a) => account(a.account, data.labels, true) },
      { title: "", cell: (a) => el("span", { class: "muted" }, data.labels[a.account] ?? "") },
      { title: "Free τ", number: true, cell: (a) => amount(a.free, 4), key: (a) => a.free },
      { title: "Staked τ", number: true, cell: (a) => amount(a.staked, 4), key: (a) => a.staked },
      { title: "Total τ", number: true, cell: (a) => amount(a.free + a.staked, 4), key: (a) => a.free + a.staked },
    ], data.accounts, { id: "accounts", sort: ui.sort.accounts }))),
  ];
}

export function accountPage(data) {
  const staked = data.stake.filter((s) => s.coldkey === data.account).reduce((sum, s) => sum + s.value, 0);
  const transfers = data.extrinsics.flatMap((x) => (x.events ?? [])
    .filter((e) => e.name === "Balances.Transfer" && (e.attributes.from === data.account || e.attributes.to === data.account))
    .map((e) => ({ ...x, ...e.attributes, sign: e.attributes.to === data.account ? 1 : -1 })));
  return [
    el("h1", {}, el("span", { class: "key" }, data.account), el("small", {}, data.labels[data.account] ?? "")),
    el("div", { class: "tiles" },
      tile("Free", tao(data.free, 4)), tile("Staked", tao(staked, 4), "at each pool's price"), tile("Total", tao(data.free + staked, 4)),
      tile("Signed", count(data.nonce), "extrinsics"),
      tile("Coldkey", account(data.owner, data.labels), data.owner ? "owns this hotkey" : "no hotkey"),
      tile("Hotkeys", count(data.hotkeys.length), "of this coldkey")),
    data.registrations.length ? panel("Registered as", null, el("div", { class: "scroll" }, table([
      { title: "Subnet", cell: (r) => subnetLink(r.netuid, r.name) },
      { title: "UID", number: true, cell: (r) => r.uid },
      { title: "Stake", number: true, cell: (r) => amount(r.total_stake, 2) },
      { title: "Incentive", number: true, cell: (r) => share(r.incentive) },
      { title: "Dividends", number: true, cell: (r) => share(r.dividends) },
      { title: "α / epoch", number: true, cell: (r) => amount(r.emission, 3) },
      { title: "Updated", number: true, cell: (r) => `${count(data.block - r.last_update)} blocks ago` },
    ], data.registrations))) : null,
    data.stake.length ? panel("Stake", null, el("div", { class: "scroll tall" }, table([
      { title: "Subnet", cell: (s) => subnetLink(s.netuid, s.name) },
      { title: "Hotkey", cell: (s) => account(s.hotkey, data.labels) },
      { title: "Held by", cell: (s) => account(s.coldkey, data.labels) },
      { title: "α", number: true, cell: (s) => amount(s.alpha, 4) },
      { title: "Worth τ", number: true, cell: (s) => amount(s.value, 4) },
    ], data.stake))) : null,
    el("div", { class: "columns" },
      transfers.length ? panel("Transfers", null, el("div", { class: "scroll tall" }, table([
        { title: "Block", cell: (t) => blockLink(t.block) },
        { title: "Age", cell: (t) => el("span", { class: "muted", title: moment(t.time) }, ago(t.time, data.time)) },
        { title: "", cell: (t) => (t.sign > 0 ? "from" : "to") },
        { title: "Account", cell: (t) => account(t.sign > 0 ? t.from : t.to, data.labels) },
        { title: "τ", number: true, cell: (t) => el("span", { class: t.sign > 0 ? "good" : null }, `${t.sign > 0 ? "+" : "−"}${amount(t.amount, 4)}`) },
      ], transfers))) : null,
      data.pay.length ? panel("Paid on this hotkey", "α per epoch, its stakers' part included", el("div", { class: "scroll tall" }, table([
        { title: "Subnet", number: true, cell: (p) => el("a", { href: `#/subnet/${p.netuid}` }, p.netuid) },
        { title: "Epoch", number: true, cell: (p) => blockLink(p.block) },
        { title: "Incentive", number: true, cell: (p) => share(p.incentive) },
        { title: "Dividends", number: true, cell: (p) => share(p.dividends) },
        { title: "α", number: true, cell: (p) => amount(p.emission, 3) },
      ], data.pay))) : null),
    panel("History", "extrinsics it signed, or that name it", extrinsics(data, data.extrinsics)),
  ];
}

export function block(data) {
  const number = data.number;
  return [
    el("h1", {}, `Block ${count(number)}`, el("small", {}, number ? el("a", { href: `#/block/${number - 1}` }, "← previous") : null, " ",
      number < data.block ? el("a", { href: `#/block/${number + 1}` }, "next →") : null)),
    panel("Header", null, pairs({
      time: moment(data.time), hash: data.hash, parent: data.header.parentHash, "state root": data.header.stateRoot,
      "extrinsics root": data.header.extrinsicsRoot, bytes: data.bytes,
    })),
    panel("Extrinsics", `${data.extrinsics.length} signed`, data.extrinsics.length ? data.extrinsics.map((x) => [
      el("div", { class: "scroll" }, extrinsics(data, [x])),
      el("details", {}, el("summary", {}, "Arguments and events"), el("div", { class: "empty" },
        el("pre", {}, x.hash), el("pre", {}, JSON.stringify(x.arguments, null, 1)),
        x.events === null ? "Its events are no longer kept." : x.events.map((e) => el("pre", {}, `${e.name} ${JSON.stringify(e.attributes)}`)))),
    ]) : empty("Only its timestamp.")),
    panel("What the block did by itself", null, data.events === null ? empty("Its events are no longer kept.")
      : data.events.length ? el("div", { class: "empty" }, data.events.map((e) => el("pre", {}, `${e.name} ${JSON.stringify(e.attributes)}`)))
        : empty("Nothing.")),
  ];
}
