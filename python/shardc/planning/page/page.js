"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const plans = data.prices.plans, best = plans[0], model = data.prices.model;
  const axes = data.mesh.axes, world = axes.reduce((n, axis) => n * axis.size, 1);
  const main = document.getElementById("main");

  // ---- elements and numbers

  const SVG = new Set(["svg", "g", "rect", "line", "text", "title", "path"]);
  function h(tag, given = {}, ...children) {
    const made = SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [key, value] of Object.entries(given)) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (key === "style") Object.assign(made.style, value);
      else if (value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
    return made;
  }
  function section(id, title, ...children) {
    const made = h("section", { class: "card", id, "aria-label": title }, h("h2", {}, title), ...children);
    main.append(made);
    return made;
  }
  function sizeText(size) {
    const units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let unit = 0;
    for (; Math.abs(size) >= 1000 && unit < units.length - 1; unit++) size /= 1000;
    return `${size.toFixed(unit ? 1 : 0)} ${units[unit]}`;
  }
  const timeText = (s) => (s >= 1 ? `${s.toFixed(2)} s` : s >= 1e-3 ? `${(s * 1e3).toFixed(1)} ms` : `${(s * 1e6).toFixed(1)} µs`);
  const partText = (part) => `${(100 * part).toFixed(1)}%`;
  const countText = (n) => Math.round(n).toLocaleString("en-US");
  const changeText = (now, then) => `${now >= then ? "+" : "−"}${Math.abs(100 * (now / then - 1)).toFixed(1)}%`;
  const meshText = (mesh) => Object.entries(mesh).map(([name, size]) => `${name} ${size}`).join(" × ");
  const unequalText = (plan) =>
    Object.entries(plan.shares || {}).map(([axis, weights]) => `, shares ${axis} ${weights.join(":")}`).join("") +
    (plan.speeds ? `, speeds ${plan.speeds.join(":")}` : "");
  const orderText = (plan) =>
    (plan.schedule ? `, ${plan.schedule}${plan.stages ? ` with ${plan.stages} stages` : ""}` : "") + unequalText(plan);
  const planText = (plan) => `${plan.plan} on ${meshText(plan.mesh)}${plan.micro_batches > 1 ? `, ${plan.micro_batches} micro-batches` : ""}${orderText(plan)}`;
  const slackOf = (plan) => Math.max(0, plan.needed_bytes - peakOf(plan));
  const peakOf = (plan) => Math.max(...plan.memory.map((rank) => rank.peak_bytes));
  const sentOf = (plan) => plan.sent.reduce((sum, one) => sum + one.bytes, 0);

  // ---- step time by cause

  const KERNELS = ["matmul", "attention", "memory", "optimizer", "host", "bubble", "overhead"];
  const waits = [...new Set([...axes.map((axis) => axis.name), ...plans.flatMap((plan) => Object.keys(plan.causes_s))])].filter((cause) => !KERNELS.includes(cause));
  const order = (cause) => { const at = [...KERNELS.slice(0, 4), ...waits, ...KERNELS.slice(4)].indexOf(cause); return at < 0 ? 99 : at; };
  const colour = (cause) => `var(--c-${KERNELS.includes(cause) ? cause : `axis${waits.indexOf(cause) % 4}`})`;
  const causeText = (cause) => data.words[cause] || (waits.includes(cause) ? `waiting for ${cause}` : cause);
  const causesOf = (causes) => Object.entries(causes).filter(([, s]) => s > 0).sort(([a], [b]) => order(a) - order(b));

  function timeBar(causes, longest, thin) {
    const parts = causesOf(causes).map(([cause, s]) => {
      const part = s / longest, text = `${causeText(cause)}: ${timeText(s)}`;
      return h("i", { title: text, style: { width: `${100 * part}%`, background: colour(cause) } }, part > 0.03 ? causeText(cause) : "");
    });
    return fitted({ class: thin ? "bar thin" : "bar", role: "img", "aria-label": causesOf(causes).map(([c, s]) => `${causeText(c)} ${timeText(s)}`).join(", ") }, parts);
  }
  /* A bar whose parts have labels where there is room for them. */
  function fitted(given, parts) {
    const made = h("div", given, parts), labels = parts.map((part) => part.textContent);
    new ResizeObserver(() => parts.forEach((part, n) => { part.textContent = labels[n]; if (part.scrollWidth > part.clientWidth) part.textContent = ""; })).observe(made);
    return made;
  }
  function causeList(causes, total, then) {
    const rows = causesOf(causes).map(([cause, s]) => {
      const before = then ? then[cause] || 0 : 0, more = s - before;
      const changed = then && Math.abs(more) > 1e-9 ? ` (${more > 0 ? "+" : "−"}${timeText(Math.abs(more))})` : "";
      return h("li", {}, h("span", { class: "swatch", style: { background: colour(cause) } }), h("span", { class: "name" }, causeText(cause)),
        h("span", { class: "number" }, `${timeText(s)} · ${partText(s / total)}${changed}`));
    });
    return h("ul", { class: "legend" }, rows);
  }

  // ---- verdict

  function verdict() {
    const peak = peakOf(best), free = best.capacity_bytes - best.needed_bytes, slack = slackOf(best);
    const slackText = slack ? `, ${sizeText(best.needed_bytes)} with the allocator's slack` : "";
    const [cause, most] = Object.entries(best.causes_s).reduce((a, b) => (b[1] > a[1] ? b : a), ["nothing", 0]);
    document.getElementById("head").append(
      h("h1", {}, `${model.name}: ${planText(best)}`),
      h("p", { class: "quiet" }, `${model.parameters >= 1e8 ? `${(model.parameters / 1e9).toFixed(2)} B` : `${(model.parameters / 1e6).toFixed(2)} M`} parameters${model.tokens ? `, ${countText(model.tokens)} tokens a step` : ""}, on ${countText(world)} devices of ${best.cluster}`));
    const figure = (value, text, kind) => h("div", { class: "figure" }, h("b", { class: kind }, value), h("span", {}, text));
    main.append(h("div", { class: "cards", id: "verdict" },
      figure(best.fits ? "✓ fits" : "✗ does not fit", best.fits ? `${sizeText(peak)} of ${sizeText(best.capacity_bytes)} at the peak${slackText}, ${sizeText(free)} free` : `${sizeText(peak)} at the peak${slackText}, ${sizeText(-free)} more than ${sizeText(best.capacity_bytes)}`, best.fits ? "good" : "bad"),
      figure(timeText(best.step_s), "a step"),
      best.tokens_s ? figure(countText(best.tokens_s), `tokens/s, ${countText(best.tokens_s / world)} a device`) : null,
      figure(partText(best.flop_utilization), "model FLOPs utilization"),
      figure(causeText(cause), `takes most of a step (${partText(most / best.step_s)})`),
      best.energy_j === null ? null : figure(best.energy_j >= 1e3 ? `${(best.energy_j / 1e3).toFixed(1)} kJ` : `${best.energy_j.toPrecision(3)} J`, "energy of a step"),
      best.dollars === null ? null : figure(`$${best.dollars.toPrecision(3)}`, "price of a step")));
  }

  // ---- memory

  const ROLES = [["param", "parameters"], ["opt_state", "optimizer state"], ["buffer", "buffers"], ["input", "batch"]];
  const KINDS = [["gradients", "gradients"], ["activations", "activations, kept for backward"], ["collectives", "gathered, or on its way"], ["temporaries", "temporaries"]];


  function memory() {
    const fullest = best.memory.reduce((at, rank, n) => (rank.peak_bytes > best.memory[at].peak_bytes ? n : at), 0);
    const body = h("div");
    const choice = h("select", { onchange: () => show(+choice.value) }, best.memory.map((rank, n) => h("option", { value: n, selected: n === fullest }, `stage ${n}, rank ${rank.rank}${n === fullest ? " (fullest)" : ""}`)));
    section("memory", "Memory of a device", best.memory.length > 1 ? h("div", { class: "line" }, h("label", {}, "of ", choice)) : "", body);
    const show = (n) => body.replaceChildren(kinds(best.memory[n]), ...overTime(data.memory[n]));
    show(fullest);
  }
  function kinds(rank) {
    const known = new Map(ROLES), given = Object.entries(rank.given_bytes);
    const rest = rank.peak_bytes - given.reduce((sum, [, size]) => sum + size, 0);
    const other = given.reduce((sum, [role, size]) => sum + (known.has(role) ? 0 : size), 0);
    const rows = [...given.filter(([role]) => known.has(role)).map(([role, size]) => [role, known.get(role), size]), ["other", "hyperparameters, random seed", other], ...(rank.made_bytes && KINDS.some(([kind]) => rank.made_bytes[kind]) ? KINDS.map(([kind, name]) => [kind, name, rank.made_bytes[kind]]) : [["made", "made by the step", rest]])].filter(([, , size]) => size > 0);
    const scale = Math.max(best.capacity_bytes, rank.peak_bytes) * 1.02;
    const fill = (role) => `var(--c-${known.has(role) || role === "made" || KINDS.some(([kind]) => kind === role) ? role : "buffer"})`;
    const at = (100 * best.capacity_bytes) / scale;
    return h("div", {},
      h("div", { class: "capacity" }, fitted({ class: "bar" }, rows.map(([role, name, size]) =>
        h("i", { title: `${name}: ${sizeText(size)}`, style: { width: `${(100 * size) / scale}%`, background: fill(role) } }, size / scale > 0.03 ? name : ""))),
        h("div", { class: "mark", style: { left: `${at}%` } }, h("span", {}, `capacity ${sizeText(best.capacity_bytes)}`))),
      h("ul", { class: "legend" }, rows.map(([role, name, size]) => h("li", {}, h("span", { class: "swatch", style: { background: fill(role) } }), h("span", { class: "name" }, name), h("span", { class: "number" }, sizeText(size))))),
      modulesOf(rank));
  }
  function modulesOf(rank) {
    if (!rank.modules || !rank.modules.length) return "";
    const rows = rank.modules.slice(0, 8).map((m) => h("tr", {}, h("td", {}, m.name), h("td", { class: "quiet" }, m.paths.length ? m.paths[0] + (m.paths.length > 1 ? ` and ${m.paths.length - 1} more` : "") : ""),
      h("td", { class: "number" }, sizeText(m.state_bytes)), h("td", { class: "number" }, sizeText(m.made_bytes))));
    return h("details", { id: "by-module" }, h("summary", {}, "by module"), h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, ["module", "where", "state", "made by its code"].map((name, n) => h("th", { class: n > 1 ? "number" : false }, name)))), h("tbody", {}, rows))));
  }
  function overTime(curve) {
    if (curve.unknown) return [h("p", { class: "quiet" }, `Activations are unknown: ${curve.unknown}`)];
    if (!curve.bytes.length) return [];
    const peak = curve.bytes.indexOf(Math.max(...curve.bytes));
    const chart = h("div", { id: "curve" }), alive = h("div", { class: "alive", id: "alive", "aria-live": "polite" });
    const moment = h("input", { type: "range", min: 0, max: curve.bytes.length - 1, value: peak, "aria-label": "moment of the step", oninput: () => pick(+moment.value) });
    const whole = h("input", { type: "checkbox", onchange: () => draw() });
    whole.checked = curve.bytes[peak] > 0.25 * best.capacity_bytes;
    let plot = null, picked = peak;
    function pick(n) {
      picked = n;
      moment.value = n;
      alive.replaceChildren(...aliveAt(curve, n, n === peak));
      if (plot) plot.redraw(false);
    }
    function draw() {
      if (plot) plot.destroy();
      plot = memoryPlot(chart, curve, whole.checked, () => picked, pick);
    }
    const tools = h("div", { class: "line", style: { marginTop: "18px" } }, h("b", {}, "over the step"), h("label", {}, whole, " against the capacity"),
      h("button", { onclick: () => pick(peak) }, "go to the peak"));
    new ResizeObserver(() => { if (plot && chart.clientWidth) plot.setSize({ width: chart.clientWidth, height: 260 }); }).observe(chart);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    requestAnimationFrame(() => { draw(); pick(peak); });
    pick(peak);
    return [tools, h("div", { class: "split" }, h("div", {}, chart, moment), alive)];
  }
  function aliveAt(curve, n, isPeak) {
    const held = curve.held[n], total = curve.bytes[n], rows = [];
    const name = (place) => { const [phase, where] = curve.places[place]; return phase || where ? `${where || "the program"}${phase ? `, ${phase}` : ""}` : "parameters, optimizer state, batch"; };
    let rest = total;
    for (let i = 0; i < held.length; i += 2) {
      rest -= held[i + 1];
      rows.push([name(held[i]), held[i + 1]]);
    }
    if (rest > 0) rows.push(["all other lines", rest]);
    return [h("b", {}, `${sizeText(total)} alive${isPeak ? ": the peak" : ""}`), h("div", { class: "quiet" }, curve.made[n] ? `after tensor ${countText(curve.made[n])}, made at ${name(curve.place[n])}` : "before the step"),
      h("ul", {}, rows.map(([text, size]) => h("li", {}, h("div", { class: "place" }, h("span", {}, text), h("span", { class: "number" }, sizeText(size))), h("div", { class: "track" }, h("div", { style: { width: `${(100 * size) / total}%` } })))))];
  }
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function memoryPlot(parent, curve, whole, picked, pick) {
    const capacity = best.capacity_bytes, top = Math.max(...curve.bytes);
    const firsts = new Map();
    curve.place.forEach((place, n) => { const phase = curve.places[place][0]; if (n && phase && !firsts.has(phase)) firsts.set(phase, n); });
    function marks(u) {
      const c = u.ctx, { left, top: y, width, height } = u.bbox, ratio = devicePixelRatio;
      c.save();
      c.textAlign = "left";
      c.font = `${12 * ratio}px system-ui, sans-serif`;
      c.lineWidth = ratio;
      let right = -1;
      for (const [phase, n] of firsts) {
        const x = u.valToPos(curve.made[n], "x", true);
        c.strokeStyle = css("--line"); c.fillStyle = css("--quiet");
        c.setLineDash([3 * ratio, 3 * ratio]);
        c.beginPath(); c.moveTo(x, y); c.lineTo(x, y + height); c.stroke();
        const wide = c.measureText(phase).width, at = Math.min(x + 4 * ratio, left + width - wide);
        if (at > right) { c.fillText(phase, at, y + 12 * ratio); right = at + wide + 6 * ratio; }
      }
      c.setLineDash([]);
      if (whole) {
        const at = u.valToPos(capacity, "y", true);
        c.strokeStyle = css("--bad"); c.fillStyle = css("--bad"); c.lineWidth = 2 * ratio;
        c.beginPath(); c.moveTo(left, at); c.lineTo(left + width, at); c.stroke();
        const text = `capacity ${sizeText(capacity)}`;
        c.fillText(text, left + width - c.measureText(text).width - 4 * ratio, at + 15 * ratio);
      }
      const n = picked(), x = u.valToPos(curve.made[n], "x", true), at = u.valToPos(curve.bytes[n], "y", true);
      c.strokeStyle = css("--text"); c.fillStyle = css("--c-made"); c.lineWidth = ratio;
      c.beginPath(); c.moveTo(x, y); c.lineTo(x, y + height); c.stroke();
      c.beginPath(); c.arc(x, at, 5 * ratio, 0, 7); c.fill();
      c.restore();
    }
    const axis = { stroke: css("--quiet"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") } };
    const plot = new uPlot({
      width: parent.clientWidth || 300, height: 260, legend: { show: false },
      scales: { x: { time: false }, y: { range: [0, (whole ? Math.max(capacity, top) : top) * 1.14 || 1] } },
      axes: [{ ...axis, label: "tensors made since the step began", labelSize: 18, size: 32, values: (_, values) => values.map((v) => countText(v)) },
        { ...axis, size: 66, values: (_, values) => values.map(sizeText) }],
      series: [{}, { stroke: css("--c-made"), fill: `${css("--c-made")}33`, width: 1.5, points: { show: false } }],
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      hooks: { draw: [marks] },
    }, [curve.made, curve.bytes], parent);
    plot.over.addEventListener("click", () => { if (plot.cursor.idx !== null && plot.cursor.idx !== undefined) pick(plot.cursor.idx); });
    return plot;
  }

  // ---- mesh

  function mesh() {
    const taken = (one) => {
      const found = data.collectives.filter((row) => row.axes.join("*") === one.axes.join("*"));
      return data.mesh.pipe || found.some((row) => row.seconds === null) ? "" : timeText(found.reduce((sum, row) => sum + row.seconds, 0));
    };
    const rows = data.mesh.sent.map((one) => h("tr", {}, h("td", {}, one.axes.join(" × ")), h("td", { class: "number" }, one.axes.reduce((n, name) => n * best.mesh[name], 1)),
      h("td", { class: "number" }, sizeText(one.bytes)), h("td", { class: "where" }, one.links.map((l) => `${l.level} ${l.ways}-way, ${sizeText(l.bytes_s)}/s a device`).join("; ") || "no links"),
      h("td", { class: "number" }, taken(one)), h("td", { class: "number" }, one.axes[0] === data.mesh.pipe ? "" : timeText(best.causes_s[one.axes.join("*")] || 0))));
    section("mesh", "Mesh, and what a device sends in a step", h("div", { class: "split mesh" }, h("div", { class: "wide" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "along"), h("th", { class: "number" }, "ways"), h("th", { class: "number" }, "sent"), h("th", {}, "over"), h("th", { class: "number" }, "takes"), h("th", { class: "number" }, "not hidden"))), h("tbody", {}, rows))), meshPicture()), data.mesh.pipe ? h("p", { class: "quiet" }, `Along ${data.mesh.pipe}: of the rank that sends most; along other axes: of all stages together.`) : "");
  }
  function meshPicture() {
    const shown = axes.filter((axis) => axis.size > 1).slice(-2);
    const [down, across] = shown.length === 2 ? shown : [{ name: "", size: 1 }, shown[0] || { name: "", size: 1 }];
    const places = (size) => (size <= 8 ? [...Array(size).keys()] : [0, 1, 2, 3, 4, 5, -1, size - 1]);
    const rows = places(down.size), columns = places(across.size), box = 30, step = 40, left = 16, top = 34;
    const width = left + columns.length * step + 110, height = top + rows.length * step;
    const alone = (name) => data.mesh.sent.find((one) => one.axes.length === 1 && one.axes[0] === name);
    const most = Math.max(...data.mesh.sent.map((one) => one.bytes), 1);
    const thickness = (name) => 1.5 + 5 * Math.sqrt((alone(name) || { bytes: 0 }).bytes / most);
    const x = (n) => left + n * step, y = (n) => top + n * step;
    const tint = (name) => `var(--c-axis${waits.indexOf(name) % 4})`;
    const made = h("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `mesh of ${meshText(best.mesh)}` });
    if (across.size > 1) {
      rows.forEach((row, r) => row >= 0 && made.append(h("line", { x1: x(0), x2: x(columns.length - 1) + box, y1: y(r) + box / 2, y2: y(r) + box / 2, stroke: tint(across.name), "stroke-width": thickness(across.name) })));
      made.append(h("text", { x: left, y: 16 }, `${across.name} ${across.size}: ${sizeText((alone(across.name) || { bytes: 0 }).bytes)}`));
    }
    if (down.size > 1) {
      columns.forEach((column, c) => column >= 0 && made.append(h("line", { x1: x(c) + box / 2, x2: x(c) + box / 2, y1: y(0), y2: y(rows.length - 1) + box, stroke: tint(down.name), "stroke-width": thickness(down.name) })));
      made.append(h("text", { x: x(columns.length) - 6, y: y(0) + 14 }, `${down.name} ${down.size}:`), h("text", { x: x(columns.length) - 6, y: y(0) + 30 }, sizeText((alone(down.name) || { bytes: 0 }).bytes)));
    }
    rows.forEach((row, r) => columns.forEach((column, c) => {
      const there = row >= 0 && column >= 0, text = there ? String(row * across.size + column) : "…";
      if (there) made.append(h("rect", { x: x(c), y: y(r), width: box, height: box, rx: 5, fill: "var(--card)", stroke: "var(--quiet)" }));
      made.append(h("text", { x: x(c) + box / 2, y: y(r) + box / 2 + 4, "text-anchor": "middle" }, text));
    }));
    const more = axes.filter((axis) => axis.size > 1).slice(0, -2).map((axis) => `${axis.name} ${axis.size}`);
    return h("div", {}, made, more.length ? h("p", { class: "quiet" }, `${more.join(" × ")} such planes; drawn is the first one`) : "");
  }

  // ---- weights

  let rank = 0;
  const weights = [];
  function coordinate(of, [name, pre, size]) {
    let stride = 1;
    for (const axis of [...axes].reverse()) {
      if (axis.name === name) return Math.floor((Math.floor(of / stride) % axis.size) / (axis.size / (pre * size))) % size;
      stride *= axis.size;
    }
    return 0;
  }
  const blockOf = (of, cuts) => cuts.reduce((at, axis) => at * axis[2] + coordinate(of, axis), 0);
  const waysOf = (cuts) => cuts.reduce((n, axis) => n * axis[2], 1);
  const isHeld = (of, weight) => !weight.stages || weight.stages.includes(coordinate(of, [data.mesh.pipe, 1, best.mesh[data.mesh.pipe]]));
  function sliceOf(of, weight) {
    return weight.shape.map((size, d) => {
      const n = (weight.padded || weight.shape)[d] / waysOf(weight.dims[d]), at = blockOf(of, weight.dims[d]);
      return `${Math.min(n * at, size)}:${Math.min(n * at + n, size)}`;
    });
  }
  function ranksText(found) {
    if (found.length <= 8) return found.join(", ");
    return `${found.slice(0, 6).join(", ")}, … ${found[found.length - 1]} (${found.length} ranks)`;
  }
  function tree() {
    const box = h("div", { id: "tree" }, data.tree.map((node) => treeNode(node, 0)));
    const number = h("input", { type: "number", min: 0, max: world - 1, value: 0, id: "rank", oninput: () => {
      const found = Math.floor(+number.value);
      if (number.value !== "" && found >= 0 && found < world) { rank = found; weights.forEach((update) => update()); }
    } });
    section("weights", "Weights, and which rank holds which slice",
      h("div", { class: "line" }, h("label", {}, "show the slices of rank ", number), h("span", { class: "quiet" }, `of ${countText(world)}; click a cell to see who holds it. Sizes: of the weights · of what a device holds of them, with optimizer state`)), box);
  }
  function treeNode(node, depth) {
    if (!node.children) return weightRow(node);
    const inside = h("div"), fill = () => { if (!inside.firstChild) inside.append(...node.children.map((child) => treeNode(child, depth + 1))); };
    const made = h("details", { ontoggle: () => made.open && fill() }, h("summary", {}, h("b", {}, node.name), node.repeat > 1 ? h("span", { class: "tag" }, `${node.repeat} equal`) : "", node.stages ? h("span", { class: "tag" }, `stage${node.stages.length > 1 ? "s" : ""} ${node.stages.length > 4 ? `${node.stages[0]} to ${node.stages[node.stages.length - 1]}` : node.stages.join(", ")}`) : "",
      h("span", { class: "size" }, `${sizeText(node.bytes)} · ${sizeText(node.held_bytes)} a device`)), inside);
    if (depth < 2) { fill(); made.open = true; }
    return made;
  }
  function weightRow(weight) {
    const cut = weight.dims.map((cuts, d) => [d, waysOf(cuts)]);
    const drawn = cut.length <= 2 ? cut : cut.filter(([, n]) => n > 1).slice(0, 2);
    const [rows, columns] = [drawn[0] || [-1, 1], drawn[1] || [-1, 1]];
    const W = 72, H = 52, wide = columns[0] < 0 ? 22 : W;
    const here = h("rect", { fill: "var(--c-param)" }), said = h("div", { class: "said", "aria-live": "polite" }), who = h("div", { class: "said" });
    const picture = h("svg", { viewBox: `-1 -1 ${W + 2} ${H + 2}`, role: "img", "aria-label": `slices of ${weight.name}` },
      h("rect", { width: wide, height: H, fill: "var(--track)" }), here, lines(rows[1], columns[1], wide, H), h("rect", { width: wide, height: H, fill: "none", stroke: "var(--quiet)" }));
    const cells = (of) => [rows, columns].map(([d]) => (d < 0 ? 0 : blockOf(of, weight.dims[d])));
    picture.addEventListener("click", (event) => {
      const box = picture.getBoundingClientRect(), x = ((event.clientX - box.left) / box.width) * (W + 2) - 1, y = ((event.clientY - box.top) / box.height) * (H + 2) - 1;
      const cell = [Math.floor((y / H) * rows[1]), Math.floor((x / wide) * columns[1])];
      if (cell[0] < 0 || cell[1] < 0 || cell[0] >= rows[1] || cell[1] >= columns[1]) return;
      const found = [...Array(world).keys()].filter((of) => isHeld(of, weight) && cells(of).every((at, i) => at === cell[i]));
      who.textContent = `block ${cell.join(", ")}: rank${found.length > 1 ? "s" : ""} ${ranksText(found)}`;
    });
    function update() {
      const held = isHeld(rank, weight), [r, c] = cells(rank);
      const height = Math.max(H / rows[1], 1.5), width = Math.max(wide / columns[1], 1.5);
      for (const [key, value] of Object.entries({ x: (c * wide) / columns[1], y: (r * H) / rows[1], width: held ? width : 0, height: held ? height : 0 })) here.setAttribute(key, value);
      said.textContent = held ? `rank ${rank} holds [${sliceOf(rank, weight).join(", ")}]` : `rank ${rank} holds nothing of it: stage ${weight.stages.join(", ")} does`;
    }
    weights.push(update);
    update();
    const state = weight.state ? `; optimizer state ${weight.state.join(", ")}` : "";
    return h("div", { class: "weight" }, picture, h("div", {}, h("code", {}, `${weight.name}  ${weight.dtype} [${weight.shape.join(", ")}]`),
      h("div", { class: "said" }, `${weight.placed}${state}; origin: ${weight.why}`), said, who));
  }
  function lines(rows, columns, width, height) {
    const made = h("g", { stroke: "var(--card)", "stroke-width": 1 });
    if (rows <= 26) for (let r = 1; r < rows; r++) made.append(h("line", { x1: 0, x2: width, y1: (r * height) / rows, y2: (r * height) / rows }));
    if (columns <= 36) for (let c = 1; c < columns; c++) made.append(h("line", { y1: 0, y2: height, x1: (c * width) / columns, x2: (c * width) / columns }));
    return made;
  }

  // ---- collectives

  const exposedText = (row) => (row.exposed_s < 1e-9 ? "hidden" : timeText(row.exposed_s));
  function collectives() {
    if (!data.collectives.length) return;
    const body = h("tbody"), total = data.collectives.reduce((sum, row) => sum + row.bytes, 0) || 1, FEW = 12;
    const show = (rows) => body.replaceChildren(...rows.map((row) => h("tr", {}, h("td", { class: "where mono" }, row.where || "—"), h("td", {}, row.phase), h("td", {}, row.kind.replaceAll("_", "-")), h("td", {}, row.axes.join(" × ")),
      h("td", { class: "number" }, countText(row.times)), h("td", { class: "number" }, sizeText(row.bytes)), h("td", { class: "number" }, partText(row.bytes / total)), h("td", { class: "number" }, row.seconds === null ? "" : timeText(row.seconds)), h("td", { class: "number" }, exposedText(row)))));
    const more = h("button", { style: { marginTop: "8px" }, onclick: () => { show(data.collectives); more.remove(); } }, `show all ${data.collectives.length}`);
    show(data.collectives.slice(0, FEW));
    section("collectives", "Collectives by source line", data.mesh.pipe ? h("p", { class: "quiet" }, "Of all stages of the pipeline together.") : "", h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, ["line", "phase", "collective", "along"].map((text) => h("th", {}, text)), ["times", "bytes sent a device", "of all", "takes", "not hidden"].map((text) => h("th", { class: "number" }, text)))), body)),
      data.collectives.length > FEW ? more : "");
  }

  // ---- timeline of a pipeline

  const ACTIONS = { F: "forward", B: "backward", I: "gradient of the input", W: "gradient of the weights" };
  function timeline() {
    const t = data.timeline;
    if (!t) return;
    const row = 22, left = 52, width = Math.max(1080, Math.min(4000, t.ranks[0].length * 9)), end = Math.max(...t.ranks.map((spans) => (spans.length ? spans[spans.length - 1][4] : 0))) || 1;
    const made = h("svg", { viewBox: `0 0 ${left + width} ${t.ranks.length * row}`, width: left + width, height: t.ranks.length * row, role: "img", "aria-label": "timeline of the pipeline" });
    t.ranks.forEach((spans, n) => {
      const lowest = Math.min(...spans.map((span) => span[1]));
      made.append(h("rect", { x: left, y: n * row + 1, width, height: row - 2, fill: "var(--track)" }), h("text", { x: 0, y: n * row + 15 }, `stage ${n}`));
      for (const [kind, stage, part, from, to] of spans) {
        const x = left + (from / end) * width, w = ((to - from) / end) * width;
        made.append(h("rect", { x, y: n * row + 1, width: w, height: row - 2, fill: `var(--c-${kind in ACTIONS ? kind : "F"})`, "fill-opacity": stage > lowest ? 0.6 : 1, stroke: "var(--card)", "stroke-width": 0.5 },
          h("title", {}, `stage ${stage}, micro-batch ${part}: ${ACTIONS[kind] || kind}, ${timeText(from)} to ${timeText(to)}`)));
        if (w > 8 * String(part).length) made.append(h("text", { x: x + w / 2, y: n * row + 16, "text-anchor": "middle", style: { fill: "var(--on-colour)", pointerEvents: "none" } }, String(part)));
      }
    });
    const used = [...new Set(t.ranks.flat().map((span) => span[0]))];
    section("timeline", "Timeline of the pipeline", h("p", { class: "quiet" }, `${partText(t.bubble)} of the time is bubble on the busiest rank; the reduction of gradients and the update come behind${t.ranks.length < t.all_ranks ? `; drawn are ${t.ranks.length} of ${t.all_ranks} ranks` : ""}`),
      h("div", { class: "wide" }, made), h("ul", { class: "legend" }, used.map((kind) => h("li", {}, h("span", { class: "swatch", style: { background: `var(--c-${kind})` } }), h("span", { class: "name" }, ACTIONS[kind] || kind)))));
  }

  // ---- what the search found

  const moreText = (seconds) => `${seconds < 0 ? "−" : "+"}${timeText(Math.abs(seconds))}`;
  function searched() {
    const found = best.searched;
    if (!found) return;
    const rows = found.runners_up.map((r) => h("tr", {}, h("td", { class: "mono" }, r.module), h("td", { class: "number" }, countText(r.calls)), h("td", {}, r.now), h("td", {}, r.other),
      h("td", { class: "number" }, moreText(r.more_s)), h("td", { class: "number" }, changeText(found.seconds + r.more_s, found.seconds)), h("td", { class: r.fits ? "good" : "bad" }, r.fits ? "✓ fits" : "✗ too much")));
    section("searched", "The search", h("p", {}, h("b", {}, timeText(found.seconds)), ` by the search's count; no plan takes less than ${timeText(found.bound_s)} (a gap of ${partText(Math.max(0, 1 - found.bound_s / found.seconds))})`),
      h("p", { class: "quiet" }, found.bound),
      rows.length ? h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, [["product", ""], ["times", "number"], ["sharded by", ""], ["best alternative", ""], ["step with it", "number"], ["", "number"], ["memory", ""]].map(([text, kind]) => h("th", { class: kind }, text)))), h("tbody", {}, rows))) : "");
  }

  // ---- questions to a search

  const againText = (plan) => planText(plan) + (plan.recompute === "none" ? "" : `, recompute ${plan.recompute}`);
  const headsOf = (heads) => h("thead", {}, h("tr", {}, heads.map(([text, kind]) => h("th", { class: kind }, text))));
  function front() {
    if (!data.front) return;
    const points = data.front.points, longest = Math.max(...points.map((p) => p.step_s)), most = Math.max(...points.map((p) => p.needed_bytes));
    const bar = (part) => h("div", { class: "bar thin" }, h("i", { style: { width: `${100 * part}%`, background: "var(--c-memory)" } }));
    const rows = points.map((p) => h("tr", {}, h("td", { class: "number" }, sizeText(p.needed_bytes)), h("td", {}, bar(p.needed_bytes / most)), h("td", { class: "number" }, timeText(p.step_s)), h("td", {}, bar(p.step_s / longest)), h("td", {}, againText(p))));
    section("front", "Memory against time", h("p", { class: "quiet" }, `The fastest plans that were found for less and less memory; the list ends because ${data.front.why}.`),
      h("div", { class: "wide" }, h("table", {}, headsOf([["needs", "number"], ["", ""], ["step", "number"], ["", ""], ["plan", ""]]), h("tbody", {}, rows))));
  }

  function sensitivity() {
    if (!data.sensitivity) return;
    const base = data.sensitivity.base;
    const kept = (row) => (row.kept_fits === null ? "" : row.kept_fits ? timeText(row.kept_step_s) : "does not fit");
    const rows = data.sensitivity.changes.map((row) => h("tr", {}, h("td", { class: "mono" }, row.change), row.problem ? h("td", { colspan: 5 }, row.problem) : [
      h("td", { class: "number" }, timeText(row.step_s)), h("td", { class: "number" }, changeText(row.step_s, base.step_s)), h("td", { class: "number" }, kept(row)), h("td", { class: "number" }, sizeText(row.needed_bytes)), h("td", {}, row.is_same ? "the same" : row.picked)]));
    section("sensitivity", "What changes the answer", h("p", { class: "quiet" }, `Each change by itself, searched again. As it is: ${base.picked}, ${timeText(base.step_s)}.`),
      h("div", { class: "wide" }, h("table", {}, headsOf([["change", ""], ["step", "number"], ["", "number"], ["plan as it is", "number"], ["needs", "number"], ["picked", ""]]), h("tbody", {}, rows))));
  }

  // ---- what if

  const SLIDERS = { links: "rate of the links", flops: "peak of products", "memory-rate": "rate of memory", memory: "memory of a device" };
  function whatIf() {
    const answer = h("div", { id: "answer", "aria-live": "polite" }), inputs = {}, rates = Object.keys(data.what_if).filter((name) => name !== "memory"), moved = [];
    const factorOf = (name) => data.what_if[name][inputs[name][0].value].factor;
    /* Of what the time depends on, two may be changed at once: the one that was moved first goes back. */
    function move(name) {
      if (rates.includes(name)) {
        if (moved.includes(name)) moved.splice(moved.indexOf(name), 1);
        moved.push(name);
        const changed = moved.filter((other) => factorOf(other) !== 1);
        if (changed.length > 2) inputs[changed[0]][0].value = data.what_if[changed[0]].findIndex((point) => point.factor === 1);
      }
      show();
    }
    function pointNow() {
      const changed = rates.filter((name) => factorOf(name) !== 1);
      if (changed.length === 2) return data.what_if_pairs[changed.join("*")][changed.map(factorOf).join("*")];
      const name = changed[0] || rates[0];
      return data.what_if[name][inputs[name][0].value];
    }
    const longest = Math.max(...[...Object.values(data.what_if).flat(), ...Object.values(data.what_if_pairs).flatMap((points) => Object.values(points))].map((p) => p.step_s));
    function show() {
      for (const [name, [, output]] of Object.entries(inputs)) output.textContent = `${factorOf(name)}×`;
      const point = pointNow(), capacity = data.what_if.memory[inputs.memory[0].value].capacity_bytes;
      const peak = best.needed_bytes, fits = peak <= capacity, isChanged = rates.some((name) => factorOf(name) !== 1);
      answer.replaceChildren(h("p", {}, h("b", {}, timeText(point.step_s)), ` a step (${isChanged ? changeText(point.step_s, best.step_s) : "as it is"}); `,
        h("span", { class: fits ? "good" : "bad" }, fits ? `✓ fits in ${sizeText(capacity)}` : `✗ ${sizeText(peak - capacity)} more than ${sizeText(capacity)}`)),
        timeBar(point.causes_s, longest), causeList(point.causes_s, point.step_s, isChanged ? best.causes_s : null));
    }
    const labels = Object.keys(data.what_if).map((name) => {
      const points = data.what_if[name], input = h("input", { type: "range", min: 0, max: points.length - 1, value: points.findIndex((point) => point.factor === 1), "data-name": name, oninput: () => move(name) });
      const output = h("output", {});
      inputs[name] = [input, output];
      return h("label", {}, SLIDERS[name] || name, output, input);
    });
    section("what-if", "What if these were different", h("p", { class: "quiet" }, "Two rates at once, and the memory beside them; a third rate puts the first back."), h("div", { class: "sliders" }, labels), answer);
    show();
  }

  // ---- other plans

  function others() {
    if (plans.length < 2) return;
    const diff = h("div", { id: "diff", "aria-live": "polite" }), severalClusters = new Set(plans.map((plan) => plan.cluster)).size > 1;
    const rows = plans.map((plan, n) => h("tr", { class: "choice", onclick: () => choose(n) }, h("td", {}, h("button", { class: "row" }, plan.plan)), h("td", {}, `${meshText(plan.mesh)}${plan.micro_batches > 1 ? `, ${plan.micro_batches} parts` : ""}${orderText(plan)}`), severalClusters ? h("td", {}, plan.cluster) : "",
      h("td", { class: "number" }, timeText(plan.step_s)), h("td", { class: "number" }, n ? changeText(plan.step_s, best.step_s) : ""), h("td", { class: "number" }, partText(plan.flop_utilization)), h("td", { class: "number" }, sizeText(peakOf(plan))),
      h("td", { class: plan.fits ? "good" : "bad" }, plan.fits ? "✓ fits" : "✗ too much"), h("td", { class: "number" }, sizeText(sentOf(plan)))));
    function choose(n) {
      rows.forEach((row, at) => row.classList.toggle("chosen", at === n));
      const plan = plans[n], longest = Math.max(plan.step_s, best.step_s);
      const more = (now, then) => `${now >= then ? "+" : "−"}${sizeText(Math.abs(now - then))}`;
      diff.replaceChildren(h("p", {}, h("b", {}, planText(plan)), ` against ${planText(best)}: step ${changeText(plan.step_s, best.step_s)}, peak ${more(peakOf(plan), peakOf(best))}, sent ${more(sentOf(plan), sentOf(best))}`),
        h("div", { class: "quiet" }, `the shown plan, ${timeText(best.step_s)}`), timeBar(best.causes_s, longest, true), h("div", { class: "quiet", style: { marginTop: "6px" } }, `this plan, ${timeText(plan.step_s)}`), timeBar(plan.causes_s, longest, true), causeList(plan.causes_s, plan.step_s, best.causes_s));
    }
    const heads = [["plan", ""], ["mesh", ""], ...(severalClusters ? [["cluster", ""]] : []), ["step", "number"], ["to the first", "number"], ["MFU", "number"], ["peak", "number"], ["memory", ""], ["sent a device", "number"]];
    section("plans", `All plans: ${plans.filter((plan) => plan.fits).length} of ${plans.length} fit${data.left_out ? `; ${data.left_out} more are left out` : ""}`,
      h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, heads.map(([text, kind]) => h("th", { class: kind }, text)))), h("tbody", {}, rows))), h("div", { style: { marginTop: "14px" } }, diff));
    choose(1);
  }

  verdict();
  section("time", `Time of a step: ${timeText(best.step_s)}`, timeBar(best.causes_s, best.step_s), causeList(best.causes_s, best.step_s));
  memory();
  mesh();
  tree();
  collectives();
  timeline();
  searched();
  front();
  sensitivity();
  whatIf();
  others();
  if (data.work.length) section("work", "Work of a device", h("pre", {}, data.work.join("\n")));
  if (data.remarks.length) section("remarks", "Remarks", data.remarks.map((text) => h("p", { class: "remark" }, text)));
})();
