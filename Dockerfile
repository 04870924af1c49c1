# A static binary on an empty file system, with what TLS needs to know vendors by.
#
#   docker build -t tollhouse .
#   docker run --rm -p 127.0.0.1:8080:8080 tollhouse serve --demo
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=""
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o /out/tollhouse ./cmd/tollhouse \
 && mkdir -p /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/tollhouse /tollhouse
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
# In a container, loopback is nobody else's; the admin address stays there, for `docker exec CONTAINER /tollhouse account list`.
ENV TOLLHOUSE_LISTEN=0.0.0.0:8080 TOLLHOUSE_DATA=/data
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["/tollhouse"]
CMD ["serve"]
