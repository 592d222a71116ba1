-- A dissector for the line protocol of pubsubd(8), which pubsubd-protocol(7) defines, and for what
-- daemons say to each other on it, pubsubd-mesh(7). For Wireshark and tshark 4.0 or newer:
--
--     tshark -X lua_script:pubsub.lua -r FILE
--
-- or copied to the folder that "tshark -G folders" calls "Personal Lua Plugins". It takes TCP port
-- 9014, or those of the preference pubsub.ports, and on other ports what begins as a command does.
-- The hub port speaks HTTP and WebSocket, which Wireshark knows, and so does it TLS, which this
-- hands over.
--
-- Bytes are cut into commands as the daemon cuts them: what is illegal takes exactly as much with it,
-- and after a violation that closes the connection nothing is read any more. Each one is marked, by
-- the daemon's own error codes.

local VERSION = "1"
local MAX_LINE, MAX_NAME, MAX_DIGITS = 1088, 1024, 10
local MAX_TYPED = 65536 -- bytes of data without a length
local MAX_TELNET = 256 -- bytes at the start of a read that may be telnet's
local SHOWN = 4 -- commands of a segment that the list of packets names

local pubsub = Proto("pubsub", "Publish/subscribe line protocol")
set_plugin_info({ version = VERSION, author = "the pubsubd authors" })

-- What can be filtered by

local f = {}
local function field(name, kind, title, ...)
    local key = name:gsub("%.", "_")
    f[key] = ProtoField[kind]("pubsub." .. name, title, ...)
end

field("verb", "string", "Verb")
field("name", "string", "Name")
field("length", "uint32", "Length", base.DEC, nil, nil, "Bytes of data")
field("data", "bytes", "Data")
field("text", "string", "Data as text")
field("substring", "string", "Substring")
field("telnet", "bytes", "Telnet", base.NONE, "Commands of telnet's, or the daemon's refusal of them")
field("line", "string", "Line", base.NONE, "A line that is no command")
field("request", "string", "Request", base.NONE, "What comes after //pubsubd/")
field("violation", "string", "Violation", base.NONE, "The daemon's code for what is wrong here")
field("unread", "bytes", "Not read", base.NONE, "Bytes after what closes the connection")
field("incomplete", "bytes", "Incomplete", base.NONE, "The rest of the command was not captured")
field("error.code", "string", "Error code")
field("error.text", "string", "Error text")
field("auth.name", "string", "User")
field("auth.secret", "string", "Secret")
field("auth.token", "string", "Token")
field("auth.identity", "string", "Identity", base.NONE, "Who the daemon says this is")
field("hello.version", "string", "Version")
field("hello.mesh", "string", "Mesh")
field("hello.node", "string", "Node")
field("hello.life", "uint64", "Life", base.DEC)
field("hello.start", "uint64", "Start", base.DEC, nil, nil, "Milliseconds since the epoch")
field("hello.nonce", "string", "Nonce")
field("hello.proof", "string", "Proof")
field("hello.welcome", "string", "Welcome")
field("heartbeat.kind", "string", "Kind", base.NONE, "ping or pong")
field("heartbeat.number", "uint64", "Number", base.DEC)
field("relay.origin", "string", "Origin")
field("relay.life", "uint64", "Life of the origin", base.DEC)
field("relay.sequence", "uint64", "Sequence", base.DEC)
field("relay.ttl", "uint32", "Time to live", base.DEC)
field("relay.count", "uint32", "Messages", base.DEC)
field("relay.vouched", "string", "Vouched", base.NONE, "The origin vouches for the senders")
field("advert.mesh", "string", "Mesh")
field("advert.node", "string", "Node")
field("advert.host", "string", "Host")
field("advert.port", "uint32", "Port", base.DEC)
field("advert.life", "uint64", "Life", base.DEC)
field("advert.sequence", "uint64", "Sequence", base.DEC)
field("advert.start", "uint64", "Start", base.DEC)
field("advert.version", "string", "Version")
field("advert.site", "string", "Site")
field("advert.rack", "string", "Rack")
field("advert.hub", "string", "Hub")
field("advert.link", "string", "Link")
field("advert.want", "string", "Want")
field("advert.other", "string", "Line of a later version")

local fields = {}
for _, one in pairs(f) do
    fields[#fields + 1] = one
end
pubsub.fields = fields

local told = ProtoExpert.new(
    "pubsub.told", "The daemon tells an error", expert.group.RESPONSE_CODE, expert.severity.WARN)
local refused = ProtoExpert.new(
    "pubsub.refused", "The daemon refuses this command",
    expert.group.PROTOCOL, expert.severity.WARN)
local closes = ProtoExpert.new(
    "pubsub.closes", "The daemon closes the connection because of this",
    expert.group.MALFORMED, expert.severity.ERROR)
local malformed = ProtoExpert.new(
    "pubsub.malformed", "Not what daemons say to each other",
    expert.group.MALFORMED, expert.severity.ERROR)
local partial = ProtoExpert.new(
    "pubsub.partial", "Part of a command", expert.group.UNDECODED, expert.severity.NOTE)
pubsub.experts = { told, refused, closes, malformed, partial }

pubsub.prefs.ports = Pref.range("TCP ports", "9014", "Ports of the line protocol", 65535)
pubsub.prefs.max_payload = Pref.uint(
    "Largest payload", 64 * 1024 * 1024,
    "Bytes of data that are waited for; a daemon takes 1 MiB from clients, and 64 MiB on links,"
        .. " unless it was told otherwise")

local stream_of = Field.new("tcp.stream")

-- Where a direction of a connection was closed by a violation: addresses and ports -> number of the
-- stream, or -1 where Wireshark did not tell, as in the first of two passes -> number of the packet.
local closed = {}

function pubsub.init()
    closed = {}
end

-- Small things

local function printable(text)
    return not text:find("[%z\1-\8\11\12\14-\31\127]")
end

-- Whether text is UTF-8, as Python decides it: no surrogates, nothing longer than it has to be.
local function is_utf8(text)
    local at, stop = 1, #text
    while at <= stop do
        local first = text:byte(at)
        local more, low, high = 0, 0x80, 0xBF
        if first >= 0x80 then
            if first >= 0xC2 and first <= 0xDF then
                more = 1
            elseif first >= 0xE0 and first <= 0xEF then
                more = 2
                if first == 0xE0 then low = 0xA0 elseif first == 0xED then high = 0x9F end
            elseif first >= 0xF0 and first <= 0xF4 then
                more = 3
                if first == 0xF0 then low = 0x90 elseif first == 0xF4 then high = 0x8F end
            else
                return false
            end
        end
        for number = 1, more do
            local byte = text:byte(at + number)
            if not byte or byte < low or byte > high then
                return false
            end
            low, high = 0x80, 0xBF
        end
        at = at + 1 + more
    end
    return true
end

-- What is wrong with a name or substring, by the daemon's code and words, or nil.
local function fault_of(name)
    if name == "" then
        return "bad-name", "it is missing"
    elseif #name > MAX_NAME then
        return "name-too-long", #name .. " bytes, over " .. MAX_NAME
    elseif name:find("[ \r\n]") then
        return "bad-name", "a space or a CR in it"
    elseif not is_utf8(name) then
        return "bad-name", "it is not UTF-8"
    end
    return nil
end

local function short(text)
    text = text:gsub("[%z\1-\31\127]", ".")
    return #text > 60 and text:sub(1, 60) .. "..." or text
end

-- The words of text from offset `at` of the buffer on: a list of {text, range}.
local function words_of(tvb, at, text)
    local found, start = {}, 1
    while true do
        local gap = text:find(" ", start, true)
        local word = text:sub(start, gap and gap - 1)
        -- An empty range is the rest of the buffer to Wireshark; no word is empty where it counts.
        found[#found + 1] = { word, #word > 0 and tvb(at + start - 1, #word) or nil }
        if not gap then
            return found
        end
        start = gap + 1
    end
end

local function number_of(word)
    if word and word[1]:find("^%d+$") and #word[1] <= 18 then
        return UInt64.new(word[1])
    end
    return nil
end

local function text_item(tree, one, range, text)
    if not is_utf8(text) then
        text = text:gsub("[\128-\255]", "?")
    end
    return tree:add(one, range, text)
end

-- A word that has to be a number; false if it is none.
local function number_item(tree, one, word)
    local number = number_of(word)
    if not number then
        return false
    end
    if one == f.relay_ttl or one == f.relay_count or one == f.advert_port then
        number = number:tonumber()
        if number > 0xFFFFFFFF then
            return false
        end
    end
    tree:add(one, word[2], number)
    return true
end

local function violation(tree, range, which, code, text)
    local item = tree:add(f.violation, range, code)
    item:add_proto_expert_info(which, code .. ": " .. text)
end

-- What the daemon's own names carry. Each takes the tree, the buffer, the offset and the text of the
-- data, and returns what the list of packets says, or nil and what is wrong.

local own = {}

function own.error(tree, tvb, at, data)
    local code, text = data:match("^([^ ]+) ?(.*)$")
    if not code then
        return nil, "an error without a code"
    end
    local item = text_item(tree, f.error_code, tvb(at, #code), code)
    if #text > 0 then
        text_item(tree, f.error_text, tvb(at + #data - #text, #text), text)
    end
    item:add_proto_expert_info(told, "The daemon tells: " .. short(data))
    return "error " .. code
end

function own.hello(tree, tvb, at, data)
    local words = words_of(tvb, at, data)
    if data == "welcome" then
        text_item(tree, f.hello_welcome, words[1][2], data)
        return "hello: welcome"
    end
    if words[1][1] == "proof" and #words == 2 and words[2][2] then
        text_item(tree, f.hello_proof, words[2][2], words[2][1])
        return "hello: proof"
    end
    if (#words ~= 6 and #words ~= 7) or words[1][1] ~= "1" then
        return nil, "a hello is 1 MESH NODE LIFE START NONCE [PROOF], proof PROOF, or welcome"
    end
    for number = 2, #words do
        if not words[number][2] then
            return nil, "an empty word in a hello"
        end
    end
    text_item(tree, f.hello_version, words[1][2], words[1][1])
    text_item(tree, f.hello_mesh, words[2][2], words[2][1])
    text_item(tree, f.hello_node, words[3][2], words[3][1])
    if not number_item(tree, f.hello_life, words[4])
        or not number_item(tree, f.hello_start, words[5]) then
        return nil, "the life or the start in a hello is no number"
    end
    text_item(tree, f.hello_nonce, words[6][2], words[6][1])
    if words[7] then
        text_item(tree, f.hello_proof, words[7][2], words[7][1])
    end
    return "hello of " .. words[3][1]
end

function own.heartbeat(tree, tvb, at, data)
    local words = words_of(tvb, at, data)
    local kind = words[1][1]
    if #words ~= 2 or (kind ~= "ping" and kind ~= "pong") then
        return nil, "a heartbeat is ping NUMBER or pong NUMBER"
    end
    text_item(tree, f.heartbeat_kind, words[1][2], kind)
    if not number_item(tree, f.heartbeat_number, words[2]) then
        return nil, "the number of a heartbeat is none"
    end
    return "heartbeat " .. kind .. " " .. words[2][1]
end

function own.auth(tree, tvb, at, data)
    local words = words_of(tvb, at, data)
    local first, second = words[1], words[2]
    if #words > 2 or not first[2] or (second and not second[2]) then
        return nil, "a login is NAME SECRET, a token, or in the answer: ok IDENTITY"
    elseif second and first[1] == "ok" then
        text_item(tree, f.auth_identity, second[2], second[1])
        return "auth: ok " .. second[1]
    elseif second then
        text_item(tree, f.auth_name, first[2], first[1])
        text_item(tree, f.auth_secret, second[2], second[1])
        return "auth of " .. short(first[1])
    end
    text_item(tree, f.auth_token, first[2], first[1])
    return "auth by a token"
end

local function advert(tree, tvb, at, data, mesh, node)
    tree:add(f.advert_mesh, mesh):set_generated()
    tree:add(f.advert_node, node):set_generated()
    local count, start = 0, 1
    while start <= #data + 1 do
        local stop = data:find("\n", start, true) or #data + 1
        local line = data:sub(start, stop - 1)
        local words = words_of(tvb, at + start - 1, line)
        local range = #line > 0 and tvb(at + start - 1, #line) or nil
        local verb, rest = line:match("^(%S+) (.+)$")
        count = count + 1
        if count == 1 then
            if #words ~= 2 or not words[1][2] or not number_of(words[2]) then
                return nil, "the first line of an advert is not: HOST PORT"
            end
            text_item(tree, f.advert_host, words[1][2], words[1][1])
            number_item(tree, f.advert_port, words[2])
        elseif count == 2 then
            if #words ~= 4 or verb ~= "node"
                or not number_item(tree, f.advert_life, words[2])
                or not number_item(tree, f.advert_sequence, words[3])
                or not number_item(tree, f.advert_start, words[4]) then
                return nil, "the second line of an advert is not: node LIFE SEQUENCE START"
            end
        elseif verb == "link" then
            if #words ~= 7 or (words[3][1] ~= "out" and words[3][1] ~= "in") then
                return nil, "a link of an advert is not: NODE out|in SINCE RTT MESSAGES BYTES"
            end
            text_item(tree, f.advert_link, range, rest)
        elseif verb == "want" then
            text_item(tree, f.advert_want, range, rest)
        elseif verb == "version" or verb == "site" or verb == "rack" then
            if #words ~= 2 then
                return nil, "a " .. verb .. " of an advert is not one word"
            end
            text_item(tree, f["advert_" .. verb], range, rest)
        elseif verb == "hub" then
            if #words < 4 then
                return nil, "a hub of an advert is not: SEQUENCE ACTORS CONNECTIONS"
            end
            text_item(tree, f.advert_hub, range, rest)
        elseif range then
            text_item(tree, f.advert_other, range, line)
        end
        start = stop + 1
    end
    if count < 2 then
        return nil, "an advert has a line that begins with node"
    end
    return "advert of " .. node
end

-- Commands

local command -- takes a relay's inner commands, too

function own.relay(tree, tvb, at, data, state)
    local stop = data:find("\n", 1, true)
    if not stop then
        return nil, "a relayed batch begins with a line: ORIGIN@LIFE SEQUENCE TTL COUNT [vouched]"
    end
    local words = words_of(tvb, at, data:sub(1, stop - 1))
    local origin, life = words[1][1]:match("^(.+)@(%d+)$")
    local vouched = words[5]
    if #words < 4 or #words > 5 or not origin or (vouched and vouched[1] ~= "vouched") then
        return nil, "a relayed batch does not begin with: ORIGIN@LIFE SEQUENCE TTL COUNT [vouched]"
    end
    text_item(tree, f.relay_origin, tvb(at, #origin), origin)
    number_item(tree, f.relay_life, { life, tvb(at + #origin + 1, #life) })
    if not number_item(tree, f.relay_sequence, words[2])
        or not number_item(tree, f.relay_ttl, words[3])
        or not number_item(tree, f.relay_count, words[4]) then
        return nil, "a word of a relayed batch is no number"
    end
    if vouched then
        text_item(tree, f.relay_vouched, vouched[2], vouched[1])
    end
    local inner = { relayed = true, raw = state.raw, stop = at + #data, info = {}, more = 0 }
    local offset, count = at + stop, 0
    while offset < inner.stop do
        local verb = state.raw:match("^pub ", offset + 1)
        local taken = verb and command(tvb, tree, offset, inner)
        if not taken or taken <= 0 or inner.ending then
            return nil, "a relayed batch has something else than whole pub commands"
        end
        offset, count = offset + taken, count + 1
    end
    if tostring(count) ~= words[4][1] then
        return nil, "a relayed batch has " .. count .. " messages, not " .. words[4][1]
    end
    return "relay " .. words[2][1] .. " of " .. origin .. ": " .. table.concat(inner.info, ", ")
        .. (inner.more > 0 and ", and " .. inner.more .. " more" or "")
end

local function note(state, text)
    if #state.info < SHOWN then
        state.info[#state.info + 1] = text
    else
        state.more = state.more + 1
    end
end

-- How a text says how many bytes a command still lacks: unknown.
local UNKNOWN = 0

-- Returns the length of data that ends with its line; nil if that has not come yet; or one more
-- than there may be. `at` is where the data begins.
local function typed_length(state, at)
    local most = math.min(pubsub.prefs.max_payload, MAX_TYPED)
    local stop = state.raw:find("\n", at + 1, true)
    if not stop or stop > math.min(state.stop, at + most + 2) then
        return state.stop - at > most + 1 and most + 1 or nil
    end
    local length = stop - 1 - at
    if length > 0 and state.raw:byte(stop - 1) == 13 then
        length = length - 1
    end
    return length
end

-- Shows a pub whose header, of `size` bytes, is at `offset`. Returns what command() does.
local function pub(tvb, tree, offset, state, name, digits, size)
    local raw = state.raw
    local length, most = tonumber(digits), pubsub.prefs.max_payload
    if digits == "-" then
        length, most = typed_length(state, offset + size), math.min(most, MAX_TYPED)
        if not length then
            return nil, UNKNOWN
        end
    end
    if length > most then
        local item = tree:add(pubsub, tvb(offset, state.stop - offset), "pub")
        item:set_text("pub " .. short(name) .. ", " .. digits .. " bytes")
        violation(item, tvb(offset + size - 1 - #digits, #digits), closes, "payload-too-large",
            digits .. " bytes of data, over " .. most)
        note(state, "payload-too-large")
        state.ending = true
        return state.stop - offset
    end
    local after = offset + size + length
    local total = size + length + 1
    if after < state.stop and raw:byte(after + 1) == 13 then
        total = total + 1 -- CR LF
    end
    local wrong
    if after < state.stop then
        if total == size + length + 2 then
            wrong = after + 1 < state.stop and raw:byte(after + 2) ~= 10
        else
            wrong = raw:byte(after + 1) ~= 10
        end
    end
    if not wrong and offset + total > state.stop then
        return nil, offset + total - state.stop
    end
    if wrong then
        total = state.stop - offset
    end

    local item = tree:add(pubsub, tvb(offset, total), "pub")
    item:set_text("pub " .. short(name) .. ", " .. length .. " bytes")
    text_item(item, f.verb, tvb(offset, 3), "pub")
    local code, why = fault_of(name)
    if #name > 0 then
        text_item(item, f.name, tvb(offset + 4, #name), name)
    end
    item:add(f.length, tvb(offset + size - 1 - #digits, #digits), length)
    local info
    if wrong then
        violation(item, tvb(after, 1), closes, "wrong-length",
            string.format("after the data comes byte %d, not a line feed", raw:byte(after + 1)))
        state.ending = true
        info = "wrong-length"
    elseif code then
        violation(item, tvb(offset, size), refused, code, why)
        info = code
    end
    local data = raw:sub(offset + size + 1, after)
    if length > 0 then
        item:add(f.data, tvb(offset + size, length))
        if not wrong and printable(data) and is_utf8(data) then
            text_item(item, f.text, tvb(offset + size, length), data)
        end
    end

    if not info and not state.relayed then
        local request = name:match("^//pubsubd/(.+)$")
        local mesh, node = name:match("^//peers/([^/]+)/([^/]+)$")
        if not mesh then
            mesh, node = name:match("^//fwd/peers/([^/]+)/([^/]+)$")
        end
        local fault
        if request then
            text_item(item, f.request, tvb(offset + 4 + 11, #request), request)
            info = request
            if own[request] then
                info, fault = own[request](item, tvb, offset + size, data, state)
            end
        elseif mesh then
            info, fault = advert(item, tvb, offset + size, data, mesh, node)
        end
        if fault then
            item:add_proto_expert_info(malformed, fault)
            info = "malformed " .. (request or "advert")
        end
    end
    note(state, info or "pub " .. short(name))
    return total
end

-- Shows a line that is no pub. Returns what command() does.
local function line(tvb, tree, offset, state, stop)
    local total = stop - offset + 1
    local text = state.raw:sub(offset + 1, stop)
    if text:sub(-1) == "\r" then
        text = text:sub(1, -2)
    end
    if text == "" then
        return total -- somebody has pressed Enter
    end
    local item = tree:add(pubsub, tvb(offset, total), "line")
    local verb, rest = text:match("^(%a+) (.*)$")
    verb = verb and verb:lower()
    local bare = text:lower()
    if bare == "sub" or bare == "unsub" then
        text_item(item, f.verb, tvb(offset, #text), bare)
        item:set_text(bare .. ", all names")
        note(state, bare)
        return total
    end
    if verb == "sub" or verb == "unsub" then
        text_item(item, f.verb, tvb(offset, #verb), verb)
        if #rest > 0 then
            text_item(item, f.substring, tvb(offset + #verb + 1, #rest), rest)
        end
        item:set_text(verb .. " " .. short(rest))
        local code, why = fault_of(rest)
        if code then
            violation(item, tvb(offset, total), refused, code, why)
        end
        note(state, code or verb .. " " .. short(rest))
        return total
    end
    text_item(item, f.line, tvb(offset, total), text)
    item:set_text(short(text))
    if bare == "help" or bare == "?" or bare == "quit" or bare == "exit" then
        note(state, bare)
        state.ending = bare == "quit" or bare == "exit"
        return total
    end
    if text:find(" HTTP/1%.[01]$") or text:find(" HTTP/2%.0$") then
        if verb ~= "pub" then
            violation(item, tvb(offset, total), closes, "http-request",
                "this is the first line of an HTTP request")
            note(state, "http-request")
            state.ending = true
            return total
        end
    end
    local code, why = "unknown-command", "it is not pub, sub or unsub"
    if bare == "pub" or bare == "pub " then
        code, why = "bad-name", "it is missing"
    elseif verb == "pub" then
        local name, digits = rest:match("^([^ ]*) ?([^ ]*)")
        if name == "" then
            code, why = "bad-name", "it is missing"
        else
            code, why = "bad-length", '"' .. digits .. '" is not 1 to ' .. MAX_DIGITS .. " digits"
            if digits:find("^%d+$") then
                why = "no space and no data after the length"
            end
        end
    end
    violation(item, tvb(offset, total), refused, code, why)
    note(state, code)
    return total
end

-- Shows the command at `offset`. Returns how many bytes it has, or nil and how many are lacking, as
-- far as that is known (UNKNOWN). `state` has: raw, all bytes; stop, the offset after them; info and
-- more, what is told of them in short; ending, set where the daemon reads no further.
function command(tvb, tree, offset, state)
    local raw = state.raw
    local name, digits = raw:match("^[Pp][Uu][Bb] ([^ \n]*) ([^ \n]*) ", offset + 1)
    local size = name and 4 + #name + 1 + #digits + 1
    if size and size <= MAX_LINE and offset + size <= state.stop
        and (digits:find("^%d+$") and #digits <= MAX_DIGITS or digits == "-" and not state.relayed)
    then
        return pub(tvb, tree, offset, state, name, digits, size)
    end
    local stop = raw:find("\n", offset + 1, true)
    stop = stop and stop - 1
    if stop and stop >= state.stop then
        stop = nil
    end
    if (stop or state.stop) - offset > MAX_LINE then
        local item = tree:add(pubsub, tvb(offset, state.stop - offset), "line")
        item:set_text(short(raw:sub(offset + 1, offset + 80)))
        violation(item, tvb(offset, state.stop - offset), closes, "line-too-long",
            MAX_LINE .. " bytes without a line feed")
        note(state, "line-too-long")
        state.ending = true
        return state.stop - offset
    end
    if not stop then
        return nil, UNKNOWN
    end
    return line(tvb, tree, offset, state, stop)
end

-- Returns where what telnet sends by itself ends, at the start of a read or of the daemon's answer.
local function telnet_end(raw)
    local at = 0
    while at < math.min(#raw, MAX_TELNET) do
        local first, second = raw:byte(at + 1, at + 2)
        local size = 2
        if first == 4 then -- Ctrl-D
            size = 1
        elseif first ~= 255 or not second or second < 240 or second == 255 then
            break
        elseif second == 250 then -- an option's parameters, up to IAC SE
            local stop = raw:find("\255\240", at + 1, true)
            if not stop or stop + 1 > MAX_TELNET then
                break
            end
            size = stop + 1 - at
        elseif second > 250 then
            size = 3
        end
        if at + size > #raw then
            break
        end
        at = at + size
    end
    return at
end

-- TLS begins with a record of one of four kinds and of version 3, which no command does.
local function encrypted(raw)
    return raw:find("^[\20-\23]\3") ~= nil
end

local function dissect(tvb, pinfo, tree)
    local length = tvb:len()
    if length == 0 then
        return 0
    end
    local raw = tvb:raw()
    if encrypted(raw) then
        -- Each call of a dissector by another takes one from this, and 0 is no reassembly.
        pinfo.can_desegment = pinfo.can_desegment + 1
        return Dissector.get("tls"):call(tvb, pinfo, tree)
    end

    pinfo.cols.protocol = "PUBSUB"
    local stream = stream_of()
    stream = stream and stream.value or -1
    local ends = table.concat(
        { tostring(pinfo.src), pinfo.src_port, tostring(pinfo.dst), pinfo.dst_port }, " ")
    local where = closed[ends]
    local since = where and (where[stream] or where[-1])
    local root = tree:add(pubsub, tvb())
    if since and since < pinfo.number then
        root:add(f.unread, tvb())
        pinfo.cols.info = "not read"
        return length
    end

    local state = { raw = raw, stop = length, info = {}, more = 0 }
    local offset = telnet_end(raw)
    if offset > 0 then
        root:add(f.telnet, tvb(0, offset))
        note(state, "telnet")
    end
    while offset < length do
        local taken, lacking
        if raw:find("^\255[\252\254].", offset + 1) then -- a refusal, between two frames
            root:add(f.telnet, tvb(offset, 3))
            taken = 3
        else
            taken, lacking = command(tvb, root, offset, state)
        end
        if not taken then
            local whole = tvb:reported_len() == length
            if whole and pinfo.can_desegment > 0 then
                pinfo.desegment_offset = offset
                pinfo.desegment_len =
                    lacking == UNKNOWN and DESEGMENT_ONE_MORE_SEGMENT or lacking
            else
                local item = root:add(f.incomplete, tvb(offset))
                item:add_proto_expert_info(partial)
                note(state, "part of a command")
            end
            break
        end
        offset = offset + taken
        if state.ending then
            closed[ends] = closed[ends] or {}
            closed[ends][stream] = pinfo.number
            if offset < length then
                root:add(f.unread, tvb(offset))
            end
            break
        end
    end
    if #state.info > 0 then
        local text = table.concat(state.info, ", ")
            .. (state.more > 0 and ", and " .. state.more .. " more" or "")
        -- A packet comes here twice if it ends one command that was cut and has others. What is
        -- behind the fence is told of the first time, and is not cleared.
        pinfo.cols.info:clear()
        pinfo.cols.info:append((#tostring(pinfo.cols.info) > 0 and ", " or "") .. text)
        pinfo.cols.info:fence()
    end
    return length
end

pubsub.dissector = dissect

-- On a port that nobody has told: only what can hardly be anything else, in lower case.
local function looks_right(tvb)
    local raw = tvb:raw()
    local name, digits = raw:match("^pub ([^ \r\n]+) (%d+) ")
    if name then
        return #name <= MAX_NAME and #digits <= MAX_DIGITS and is_utf8(name)
    end
    local substring = raw:match("^sub ([^ \r\n]+)\r?\n") or raw:match("^unsub ([^ \r\n]+)\r?\n")
    return substring ~= nil and #substring <= MAX_NAME and is_utf8(substring)
end

local function heuristic(tvb, pinfo, tree)
    if not looks_right(tvb) then
        return false
    end
    pinfo.conversation = pubsub
    dissect(tvb, pinfo, tree) -- and not pubsub.dissector, which would take the reassembly away
    return true
end

pubsub:register_heuristic("tcp", heuristic)
pcall(function() pubsub:register_heuristic("tls", heuristic) end)

local ports = pubsub.prefs.ports
local tcp, tls = DissectorTable.get("tcp.port"), DissectorTable.get("tls.port")
tcp:add(ports, pubsub)
tls:add(ports, pubsub)

function pubsub.prefs_changed()
    if ports ~= pubsub.prefs.ports then
        tcp:remove(ports, pubsub)
        tls:remove(ports, pubsub)
        ports = pubsub.prefs.ports
        tcp:add(ports, pubsub)
        tls:add(ports, pubsub)
    end
end
